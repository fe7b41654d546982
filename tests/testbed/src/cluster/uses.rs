//! Which tests use a control plane, one after the other.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
};

use jiff::Timestamp;

use super::{AUDIT_LOG, ControlPlane};
use crate::{
    assets::Binary,
    directory::Part,
    error::{Error, Result},
};

/// The file among the logs that lists the tests, and when each began.
const TESTS: &str = "tests.txt";

impl ControlPlane {
    /// Records that a test begins. Files that the test before has written among the logs are moved to a directory
    /// `before-N`, and the audit log begins now.
    pub(crate) fn begin_use(&mut self, test: &str) -> Result<()> {
        let logs = self.log_dir();
        let begin = || {
            if self.n_uses > 0 {
                move_files(&logs, &logs.join(format!("before-{}", self.n_uses)))?;
            }
            let mut tests = OpenOptions::new().create(true).append(true).open(logs.join(TESTS))?;
            writeln!(tests, "{:.6} {test}", Timestamp::now())
        };
        begin().map_err(Error::io(format!("record in {} that {test} begins", logs.display())))?;
        self.forget_kinds()?;
        self.n_uses += 1;
        self.begin_audit()
    }

    /// Leaves out of the audit log what has been requested so far.
    pub(crate) fn begin_audit(&mut self) -> Result<()> {
        if self.options.audit { self.audit.begin() } else { Ok(()) }
    }

    /// Removes what `kubectl` remembers about the kinds that the API server serves: the test before may have defined
    /// some.
    fn forget_kinds(&self) -> Result<()> {
        let cache = self.directory.part(Part::Home).join(".kube");
        match fs::remove_dir_all(&cache) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format!("remove {}", cache.display()))(error))
            }
            _ => Ok(()),
        }
    }
}

/// Moves all files except for those of the servers.
fn move_files(logs: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(logs)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && !is_of_servers(&entry.file_name().to_string_lossy()) {
            fs::rename(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn is_of_servers(file: &str) -> bool {
    let is_log = |binary: Binary| file.strip_suffix(".log") == Some(binary.name());
    [TESTS, AUDIT_LOG].contains(&file) || Binary::ALL.into_iter().any(is_log)
}
