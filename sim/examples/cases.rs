use kube_batch_framework::{
    candidates::Search,
    conf::{Conf, PluginConf},
    plugin::{Question, Questions},
};
use kube_batch_sim::{case::Case, runner};
fn conf(v: Option<&serde_json::Value>) -> Conf {
    let Some(v) = v else { return Conf::default() };
    let actions = v["actions"].as_str().unwrap().split(',').map(|s| s.trim().to_owned()).collect();
    let tiers = v["tiers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            t["plugins"]
                .as_array()
                .unwrap()
                .iter()
                .map(|p| {
                    let mut c = PluginConf::named(p["name"].as_str().unwrap());
                    let mut q = Questions::ALL;
                    for x in Question::ALL {
                        if p[x.key()] == serde_json::Value::Bool(false) {
                            q = q.without(x);
                        }
                    }
                    c.questions = q;
                    if let Some(a) = p["arguments"].as_object() {
                        for (k, v) in a {
                            c.arguments.insert(
                                k.clone(),
                                v.as_str().map_or_else(|| v.to_string(), str::to_owned),
                            );
                        }
                    }
                    c
                })
                .collect()
        })
        .collect();
    Conf { actions, tiers }
}
fn main() {
    let (mut pass, mut fail) = (0, 0);
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path).unwrap();
        let cases: Vec<Case> = match serde_saphyr::from_multiple(&text) {
            Ok(c) => c,
            Err(e) => {
                println!("ERR {path} {e}");
                fail += 1;
                continue;
            }
        };
        for case in cases {
            let r = std::panic::catch_unwind(|| {
                let mut r = runner::run(&case, conf(case.config.as_ref()), Search::Index);
                let n = runner::run(&case, conf(case.config.as_ref()), Search::Naive);
                if r != n {
                    println!("NAIVE DIFFERS {}", case.name);
                    if r.is_ok() && r.as_ref().unwrap().is_empty() {
                        r = n
                    }
                }
                r
            });
            match r {
                Ok(Ok(m)) if m.is_empty() => {
                    pass += 1;
                }
                Ok(Ok(m)) => {
                    fail += 1;
                    println!("FAIL {}", case.name);
                    for m in m {
                        println!("    {}: wanted {}, got {}", m.key, m.wanted, m.got);
                    }
                }
                Ok(Err(e)) => {
                    fail += 1;
                    println!("ERR {} {e}", case.name)
                }
                Err(_) => {
                    fail += 1;
                    println!("PANIC {}", case.name)
                }
            }
        }
    }
    println!("{pass} passed, {fail} failed");
}
