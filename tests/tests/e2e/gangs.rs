//! Gangs start whole or not at all.

use crate::bed::{Bed, group, job, nodes};

#[test]
fn a_gang_starts_when_all_of_it_fits() {
    let mut bed = Bed::new(&nodes(2, "2"));
    bed.schedule(&[]);
    bed.apply(&group("whole", 4));
    bed.apply(&job("whole", 4, "1"));
    bed.runs("whole", 4);

    bed.apply(&group("waits", 2));
    bed.apply(&job("waits", 2, "1"));
    bed.eventually("the second gang says why it waits", || {
        let status = bed.get("podgroups.scheduling.sigs.dev", "waits")["status"].clone();
        let message = status["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
        let wanted =
            "2/2 tasks in gang unschedulable: 0/2 nodes are available: 2 Insufficient cpu.";
        if message == wanted { Ok(()) } else { Err(status.to_string()) }
    });
    bed.never_runs("waits");
    bed.kubectl(["delete", "job", "whole", "--namespace", crate::bed::NAMESPACE]).expect("deleted");
    bed.runs("waits", 2);
}
