//! Sources of manifests: files, directories, and standard input.

use std::{
    borrow::Cow,
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::diagnostic::{Diagnostic, Severity};

/// The largest source that is read: 2 GiB. Guessed; it rejects endless devices.
const MAX_BYTES: u64 = 2 << 30;

/// Extensions of manifests in a directory.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Something that manifests are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// The standard input.
    Stdin,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Stdin => f.write_str("<stdin>"),
        }
    }
}

impl Source {
    /// The bytes.
    ///
    /// # Errors
    ///
    /// An error of the operating system, or a file that is too large.
    pub fn load(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::File(path) => {
                let file = fs::File::open(path)?;
                let size = file.metadata()?.len().min(MAX_BYTES);
                read_all(file, usize::try_from(size).unwrap_or_default())
            }
            Self::Stdin => read_all(io::stdin().lock(), 0),
        }
    }
}

fn read_all(from: impl Read, expected: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve(expected)?;
    let n_bytes = from.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if n_bytes as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 2 GiB"));
    }
    Ok(bytes)
}

/// That a file cannot be read.
pub fn unreadable(name: &str, error: &io::Error) -> Diagnostic {
    let mut cause = error.to_string();
    // In the style of our own messages: lower case, and without the error number.
    if let Some(end) = cause.find(" (os error") {
        cause.truncate(end);
    }
    let cause = cause[..1].to_lowercase() + &cause[1..];
    Diagnostic::of_source(Severity::Error, name, format!("cannot read: {cause}"))
}

/// The sources at the given paths: a file, every manifest in a directory and below it, sorted by
/// path, or standard input for `-`. Hidden files are ignored, and links to directories are not
/// followed. A path that cannot be read, or has no manifests, is a problem.
pub fn collect_sources<P: AsRef<Path>>(paths: &[P]) -> (Vec<Source>, Vec<Diagnostic>) {
    let mut sources = vec![];
    let mut problems = vec![];
    for path in paths.iter().map(AsRef::as_ref) {
        let name = path.display().to_string();
        match fs::metadata(path) {
            _ if path == Path::new("-") => sources.push(Source::Stdin),
            Err(error) => problems.push(unreadable(&name, &error)),
            // A pipe can be opened only once.
            Ok(metadata) if metadata.is_file() => match fs::File::open(path) {
                Ok(_) => sources.push(Source::File(path.to_owned())),
                Err(error) => problems.push(unreadable(&name, &error)),
            },
            Ok(metadata) if !metadata.is_dir() => sources.push(Source::File(path.to_owned())),
            Ok(_) => {
                let mut files = vec![];
                walk(path, &mut files, &mut problems);
                files.sort();
                if files.is_empty() {
                    let message = "contains no manifests (*.yaml, *.yml, *.json)";
                    problems.push(Diagnostic::of_source(Severity::Error, name, message));
                }
                sources.extend(files.into_iter().map(Source::File));
            }
        }
    }
    (sources, problems)
}

fn walk(directory: &Path, files: &mut Vec<PathBuf>, problems: &mut Vec<Diagnostic>) {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            return problems.push(unreadable(&directory.display().to_string(), &error));
        }
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                problems.push(unreadable(&directory.display().to_string(), &error));
                continue;
            }
        };
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        // The type of the entry itself, so that a link to a directory is not a directory.
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory {
            walk(&path, files, problems);
        } else if is_manifest(&path) && !path.is_dir() {
            files.push(path);
        }
    }
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension))
}

/// The bytes as UTF-8, if they are marked as UTF-16, as PowerShell writes redirected output.
pub(crate) fn decode(bytes: &[u8]) -> Cow<'_, [u8]> {
    let unit: fn([u8; 2]) -> u16 = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return Cow::Borrowed(bytes),
    };
    let units = bytes[2..].chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    let text: String =
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    Cow::Owned(text.into_bytes())
}
