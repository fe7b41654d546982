//! Certificates that expire.

use std::{
    thread,
    time::{Duration, SystemTime},
};

use crate::{
    bed::{Bed, SCHEDULER, group, job, nodes},
    proxy::Proxy,
};

fn create_gang(bed: &Bed, name: &str) {
    bed.apply(&group(name, 3));
    bed.apply(&job(name, 3, "1"));
}

#[test]
fn a_process_whose_client_certificate_has_expired_ends_and_another_reads_the_new_one() {
    let mut bed = Bed::new(&nodes(2, "8"));
    let kubeconfig = bed.plane.kubeconfig_for_user(SCHEDULER, &[]).expect("a kubeconfig");
    let lifetime = Duration::from_secs(20);
    let renew = |bed: &Bed, expires| {
        let renewed = bed.plane.renew_kubeconfig(&kubeconfig, SCHEDULER, &[], expires);
        renewed.expect("a kubeconfig");
    };
    renew(&bed, Some(SystemTime::now() + lifetime));
    let row = bed.spawn_scheduler_as(&kubeconfig, &[]);
    bed.wait_until_ready(row);
    create_gang(&bed, "before");
    bed.wait_until_running("before", 3);
    thread::sleep(lifetime);
    create_gang(&bed, "after");
    let mut scheduler = bed.take_scheduler(row);
    let mut code = None;
    for _ in 0..90 {
        code = scheduler.exit_code();
        if code.is_some() {
            break;
        }
        thread::sleep(Duration::from_secs(1));
    }
    assert_eq!(code, Some(2), "{}", scheduler.log());
    let log = scheduler.log();
    assert!(
        log.contains("the API server has rejected the credentials (401 Unauthorized)"),
        "{log}"
    );
    renew(&bed, None);
    bed.spawn_scheduler_as(&kubeconfig, &[]);
    bed.wait_until_running("after", 3);
}

#[test]
fn scheduling_continues_when_the_expired_certificate_of_the_api_server_is_renewed() {
    let mut bed = Bed::new(&nodes(2, "8"));
    let proxy = Proxy::start(&bed.plane);
    let row = bed.start_scheduler(&[&proxy.flag()]);
    create_gang(&bed, "before");
    bed.wait_until_running("before", 3);
    let (certificate, key) = bed.plane.expired_serving_certificate().expect("a certificate");
    proxy.present((&certificate, &key));
    proxy.disconnect_all();
    create_gang(&bed, "after");
    bed.eventually("the log says why nothing works", || {
        let log = bed.scheduler(row).log();
        if log.contains("certificate expired") { Ok(()) } else { Err(log) }
    });
    bed.expect_waiting("after");
    assert_eq!(bed.scheduler(row).get("/healthz").0, 200, "the process keeps running");
    proxy.present(bed.plane.serving_certificate());
    bed.wait_until_running("after", 3);
}
