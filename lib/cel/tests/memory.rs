//! What compiling and evaluating keep in memory is bounded by what they are charged. This is the only test of its
//! process, since the peak is measured for the whole process.

use kube_batch_cel::{COST_LIMIT, Device, Program};

/// Peak memory of the process, if the system reports it.
fn peak_mb() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<usize>().ok().map(|kb| kb / 1024)
}

/// An expression in which a text of `n << 17` bytes stands for `$`.
fn of_a_long_text(begins: &str, last: &str) -> String {
    let binds: String = (1..=17).map(|n| format!("cel.bind(v{n}, v{0} + v{0}, ", n - 1)).collect();
    let last = last.replace('$', "v17");
    format!("cel.bind(v0, r'{begins}', {binds}{last}){}", ")".repeat(17))
}

fn hostile() -> Vec<String> {
    let long = |last: &str| of_a_long_text("aaaaaaaaaa", last);
    let many = |pattern: &str, n: usize| {
        let terms: Vec<String> = (0..n).map(|n| format!("'a'.matches(r'{n}{pattern}')")).collect();
        terms.join(" || ")
    };
    vec![
        // Without limits these take gigabytes.
        long("cel.bind(u, url('http://' + $ + '/'), lists.range(20000).map(x, u.getHost()) == [])"),
        of_a_long_text(
            "aaaaaaaa!^",
            "lists.range(20).map(x, url('http://h/' + $).getEscapedPath()) == []",
        ),
        of_a_long_text("a=b&", "lists.range(20).map(x, url('http://h/?' + $).getQuery()) == []"),
        long("lists.range(20).map(x, $.split('')) == []"),
        long("lists.range(1000).map(x, $ + string(x)) == []"),
        long("lists.range(1000).map(x, bytes($)) == []"),
        long("lists.range(1000).map(x, '%s'.format([$])) == []"),
        format!("lists.range(100000).map(x, [x{}]) == []", ", 1".repeat(2000)),
        format!("lists.range(100000).map(x, {{x: 1{}}}) == []", ", -1: x".repeat(1000)),
        "lists.range(100000).map(x, lists.range(900000)) == []".to_owned(),
        // Regular expressions, in either case of letters.
        format!("'a'.matches(r'(?i){}')", r"\PL".repeat(3000)),
        of_a_long_text(r"\PL\PL\PL", "'a'.matches($)"),
        many(r"\pL{1,9}", 400),
        many(r"(\pL{1,7}){1,5}", 250),
        r"lists.range(99).exists(x, 'x'.matches(r'\pL{1,5}' + string(x)))".to_owned(),
        // A type that mentions another twice, 60 times, and a message about it.
        (1..60).fold("cel.bind(v0, {1: 1}, ".to_owned(), |text, n| {
            format!("{text}cel.bind(v{n}, {{v{0}: v{0}}}, ", n - 1)
        }) + "[v59, 1].size() == 0"
            + &")".repeat(60),
    ]
}

#[test]
fn hostile_expressions_take_little_memory() {
    let device = Device::new("d", false, [], []);
    for expression in hostile() {
        let before = peak_mb();
        let compilation = Program::compile_metered(&expression);
        assert!(compilation.work < 5_000_000, "{}", compilation.work);
        if let Ok(program) = compilation.program {
            drop(program.evaluate(&device, COST_LIMIT));
        }
        if let (Some(before), Some(after)) = (before, peak_mb()) {
            let end = &expression[expression.len().saturating_sub(100)..];
            assert!(after - before < 50, "{before} MB before, {after} MB after: {end}");
        }
    }
}
