//! A gang starts all at once or not at all.

use crate::bed::{Bed, group, job, nodes};

#[test]
fn a_gang_starts_only_when_all_its_pods_fit() {
    let mut bed = Bed::new(&nodes(2, "2"));
    bed.start_scheduler(&[]);
    bed.apply(&group("whole", 4));
    bed.apply(&job("whole", 4, "1"));
    bed.wait_until_running("whole", 4);

    bed.apply(&group("waits", 2));
    bed.apply(&job("waits", 2, "1"));
    bed.eventually("the condition of the second gang gives the reason", || {
        let status = bed.get("podgroups.scheduling.sigs.dev", "waits")["status"].clone();
        let message = status["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
        let wanted = "0 of 2 pods can be placed; missing: 2 pods with 1 cpu each: 0/2 nodes are available: 2 \
                      Insufficient cpu; queue \"default\" uses 4 of the 4 cpu that it deserves";
        if message == wanted { Ok(()) } else { Err(status.to_string()) }
    });
    bed.expect_waiting("waits");
    bed.kubectl(["delete", "job", "whole", "--namespace", crate::bed::NAMESPACE]).expect("deleted");
    bed.wait_until_running("waits", 2);
}
