//! Where the binaries of the servers, and of Helm, are.
//!
//! No distribution contains all of them, but all are Go programs: they are built once, from the
//! versions that `tests/envtest/go.mod` pins, and kept in the user's cache, which all checkouts share.

use std::{
    env, fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use crate::error::{Error, Result};

/// The Kubernetes release that `tests/envtest/go.mod` pins.
///
/// A binary built from a module does not know its version: kubectl and the API server would report v0.0.0.
const KUBERNETES_VERSION: &str = "v1.37.1";

/// A program of the test bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Binary {
    /// The store behind the API server.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controllers of Kubernetes itself: Jobs, garbage, volumes, service accounts.
    ControllerManager,
    /// The scheduler of Kubernetes itself.
    Scheduler,
    /// The command line client.
    Kubectl,
    /// Simulates the kubelets of any number of nodes.
    Kwok,
    /// The package manager. It is no part of a control plane: see [`Assets::helm`].
    Helm,
}

impl Binary {
    /// Every program of a control plane, in the order in which they are built.
    pub const ALL: [Self; 6] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubectl,
        Self::Kwok,
    ];

    /// The name of its file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kwok => "kwok",
            Self::Helm => "helm",
        }
    }

    /// The Go package it is built from.
    fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::ControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Scheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok",
            Self::Helm => "helm.sh/helm/v3/cmd/helm",
        }
    }
}

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The module files that pin all programs. There is one module, so that what programs share is compiled once: most of
/// a program is libraries of Kubernetes.
const GO_MOD: &str = include_str!("../../envtest/go.mod");
const GO_SUM: &str = include_str!("../../envtest/go.sum");

/// Programs that are built together and kept in one directory.
struct Set {
    title: &'static str,
    binaries: &'static [Binary],
}

const SERVERS: Set = Set { title: "the servers of the test bed", binaries: &Binary::ALL };

/// Apart from the servers: to pack the chart, Helm is enough.
const TOOLS: Set = Set { title: "Helm", binaries: &[Binary::Helm] };

/// A directory with the binaries.
#[derive(Clone, Debug)]
pub struct Assets {
    directory: PathBuf,
}

impl Assets {
    /// The directory in `KUBEBUILDER_ASSETS`, else one in the user's cache, which is built if it is missing.
    ///
    /// Building takes minutes and writes a line for each binary to standard error.
    /// Processes that need it at the same time wait for the one that builds.
    ///
    /// # Errors
    ///
    /// [`Error::AssetsMissing`] if that directory lacks one of `needed`, [`Error::GoMissing`] if there
    /// is no Go to build with, [`Error::Build`] if it could not build.
    pub fn provide(needed: &[Binary]) -> Result<Self> {
        match named_directory() {
            Some(directory) => Self::named(directory, needed),
            None => Self::built(&cache_directory()?, &SERVERS),
        }
    }

    /// The path of Helm: in the directory in `KUBEBUILDER_ASSETS` if it is there, else in the user's
    /// cache, where it is built if it is missing.
    ///
    /// # Errors
    ///
    /// [`Error::GoMissing`] if there is no Go to build with, [`Error::Build`] if it could not build.
    pub fn helm() -> Result<PathBuf> {
        if let Some(path) = named_helm() {
            return Ok(path);
        }
        Ok(Self::built(&cache_directory()?, &TOOLS)?.path(Binary::Helm))
    }

    /// Whether [`Assets::provide`] and [`Assets::helm`] have nothing to build, so that they need no Go.
    pub fn are_built() -> bool {
        let is_in_cache = |set| cache_directory().is_ok_and(|cache| cache.join(key(set)).is_dir());
        (named_directory().is_some() || is_in_cache(&SERVERS))
            && (named_helm().is_some() || is_in_cache(&TOOLS))
    }

    /// The directory of the binaries.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of `binary`.
    pub fn path(&self, binary: Binary) -> PathBuf {
        self.directory.join(binary.name())
    }

    fn named(directory: PathBuf, needed: &[Binary]) -> Result<Self> {
        let missing: Vec<&str> = needed
            .iter()
            .map(|binary| binary.name())
            .filter(|name| !directory.join(name).is_file())
            .collect();
        if missing.is_empty() {
            return Ok(Self { directory });
        }
        Err(Error::AssetsMissing { directory, missing: missing.join(", ") })
    }

    fn built(cache: &Path, set: &Set) -> Result<Self> {
        let key = key(set);
        let directory = cache.join(&key);
        if directory.is_dir() {
            return Ok(Self { directory });
        }
        fs::create_dir_all(cache)
            .map_err(Error::io(format!("create the directory {}", cache.display())))?;
        let lock = cache.join(format!("{key}.lock"));
        let lock = File::create(&lock).map_err(Error::io(format!("create {}", lock.display())))?;
        lock.lock().map_err(Error::io("lock the cache of the test bed"))?;
        // Another process may have built it while it held the lock.
        if !directory.is_dir() {
            build(set, &cache.join(format!("{key}.partial")), &directory)?;
        }
        Ok(Self { directory })
    }
}

/// The directory in `KUBEBUILDER_ASSETS`.
fn named_directory() -> Option<PathBuf> {
    let directory = env::var_os("KUBEBUILDER_ASSETS").filter(|directory| !directory.is_empty());
    directory.map(PathBuf::from)
}

/// Helm in that directory.
fn named_helm() -> Option<PathBuf> {
    named_directory().map(|directory| directory.join("helm")).filter(|path| path.is_file())
}

/// Builds everything in `partial` and moves it to `directory` when it is complete.
fn build(set: &Set, partial: &Path, directory: &Path) -> Result<()> {
    go().arg("version")
        .stdout(Stdio::null())
        .status()
        .map_err(|source| Error::GoMissing { source })?;
    eprintln!("building {}, once; this takes a few minutes", set.title);
    if partial.exists() {
        fs::remove_dir_all(partial)
            .map_err(Error::io(format!("remove the directory {}", partial.display())))?;
    }
    let source = partial.join("module");
    let write = || {
        fs::create_dir_all(&source)?;
        fs::write(source.join("go.mod"), GO_MOD)?;
        fs::write(source.join("go.sum"), GO_SUM)
    };
    write().map_err(Error::io(format!("write module files to {}", source.display())))?;
    for (nth, binary) in (1..).zip(set.binaries) {
        let started = Instant::now();
        eprint!("  {nth}/{} {binary} … ", set.binaries.len());
        let output = go()
            .args(["build", "-trimpath", "-buildvcs=false", "-mod=readonly"])
            // They run without a debugger, and what a debugger needs takes a seventh of the time to compile.
            .arg("-gcflags=all=-dwarf=false")
            .args(["-ldflags", &link_flags()])
            .arg("-o")
            .arg(partial.join(binary.name()))
            .arg(binary.package())
            .current_dir(&source)
            .output()
            .map_err(|source| Error::GoMissing { source })?;
        if !output.status.success() {
            eprintln!("failed");
            let output = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
            return Err(Error::Build { binary: binary.name(), output });
        }
        eprintln!("{} s", started.elapsed().as_secs());
    }
    fs::rename(partial, directory)
        .map_err(Error::io(format!("move {} into place", directory.display())))
}

/// A `go` command whose result does not depend on settings of the environment.
fn go() -> Command {
    let mut go = Command::new("go");
    go.env("CGO_ENABLED", "0").env("GOWORK", "off").env("GOFLAGS", "").stdin(Stdio::null());
    go
}

fn link_flags() -> String {
    let mut parts = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let variables = [("gitVersion", KUBERNETES_VERSION), ("gitMajor", major), ("gitMinor", minor)];
    let mut flags = "-s -w".to_owned();
    for (variable, value) in variables {
        flags.push_str(&format!(" -X k8s.io/component-base/version.{variable}={value}"));
    }
    flags
}

/// A hash of everything that the binaries depend on, as the name of a directory.
fn key(set: &Set) -> String {
    let mut parts = vec![env::consts::OS.to_owned(), env::consts::ARCH.to_owned(), link_flags()];
    parts.extend(set.binaries.iter().map(|binary| binary.package().to_owned()));
    parts.extend([GO_MOD, GO_SUM].map(str::to_owned));
    format!("{:016x}", fnv1a(parts.join("\0").as_bytes()))
}

/// The 64-bit FNV-1a hash: the same in every version of Rust, which the standard library's is not.
///
/// Source: RFC 9923, "The FNV Non-Cryptographic Hash Algorithm".
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn cache_directory() -> Result<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME")
        .or_else(|| env::home_dir().map(|home| home.join(".cache")))
        .ok_or(std::io::ErrorKind::NotFound.into())
        .map_err(Error::io("find the user's cache directory: set HOME or XDG_CACHE_HOME"))?;
    Ok(cache.join("kube-batch").join("envtest"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_agrees_with_the_published_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn reported_version_is_the_pinned_version() {
        assert!(GO_MOD.contains(&format!("k8s.io/kubernetes {KUBERNETES_VERSION}")));
        assert!(link_flags().ends_with("version.gitMinor=37"));
    }

    #[test]
    fn missing_binaries_are_named_in_the_error() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("etcd"), "").unwrap();
        let error = Assets::named(directory.path().to_owned(), &Binary::ALL[..3]).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("lacks kube-apiserver, kube-controller-manager;"), "{message}");
    }
}
