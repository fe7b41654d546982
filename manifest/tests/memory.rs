//! Reading needs little more memory than the text. This is the only test of its process, since
//! the peak is measured for the whole process.

use kube_batch_cache::dump::Dump;
use kube_batch_manifest::{
    diagnostic::Diagnostic,
    object::Object,
    place::Place,
    reader::{Reader, Sink},
};
use kube_batch_model::facts::FactError;

struct Counted(usize);

impl Sink for Counted {
    fn dump(&mut self, _: Dump) {}

    fn object(&mut self, _: Object, _: &Place<'_>) -> Result<(), FactError> {
        self.0 += 1;
        Ok(())
    }

    fn problem(&mut self, diagnostic: Diagnostic) {
        panic!("{diagnostic}");
    }
}

/// Peak memory of the process, if the system reports it.
fn peak_mb() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<usize>().ok().map(|kb| kb / 1024)
}

fn pod(n: usize) -> String {
    format!(
        "apiVersion: v1\n  kind: Pod\n  metadata:\n    name: p{n}\n    labels: {{a: b, c: d}}\n  \
         spec:\n    containers:\n    - name: main\n      image: app\n      resources:\n        \
         requests: {{cpu: '1', memory: 2Gi}}\n"
    )
}

#[test]
fn neither_documents_nor_lists_are_kept_in_memory() {
    const N_PODS: usize = 30_000;
    let documents: String =
        (0..N_PODS).map(|n| format!("---\n{}", pod(n).replace("\n  ", "\n"))).collect();
    let items: String = (0..N_PODS).map(|n| format!("- {}", pod(n))).collect();
    let list = format!("apiVersion: v1\nitems:\n{items}kind: List\n");
    let before = peak_mb();
    for text in [&documents, &list] {
        let mut sink = Counted(0);
        Reader::new().read("pods", text.as_bytes(), &mut sink);
        assert_eq!(sink.0, N_PODS);
    }
    if let (Some(before), Some(after)) = (before, peak_mb()) {
        // As objects, the pods of either text would take 190 MB.
        assert!(after - before < 50, "{before} MB before, {after} MB after");
    }
}
