//! Prints the time of one evaluation. Run it with `--release`.

use std::{hint::black_box, time::Instant};

use kube_batch_cel::{Attribute, COST_LIMIT, Device, Program};

const EXPRESSIONS: [&str; 5] = [
    r#"device.driver == "gpu.example.com""#,
    r#"device.attributes["gpu.example.com"].model == "a100""#,
    r#"device.attributes["gpu.example.com"].?cores.orValue(0) > 100"#,
    r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"#,
    r#"cel.bind(gpu, device.attributes["gpu.example.com"], gpu.model.matches("^a1") && gpu.cores > 100)"#,
];

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn main() {
    let attributes = [("model", Attribute::from("a100")), ("cores", Attribute::Int(108))];
    let memory = "40Gi".parse().expect("a quantity");
    let device = Device::new("gpu.example.com", false, attributes, [("memory", memory)]);
    for expression in EXPRESSIONS {
        let program = Program::compile(expression).expect("the expression compiles");
        let n = 1_000_000_u32;
        let start = Instant::now();
        for _ in 0..n {
            black_box(program.evaluate(black_box(&device), COST_LIMIT).outcome.is_ok());
        }
        println!("{:6.0} ns  {expression}", start.elapsed().as_secs_f64() * 1e9 / f64::from(n));
    }
}
