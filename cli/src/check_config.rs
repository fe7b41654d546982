//! The command `check-config`: checks a scheduler configuration, or converts one of Volcano's scheduler, or queues.
//!
//! A configuration is checked by the code that `run` reads it with. One that is valid here is never
//! converted, unless the user says whose it is. Other files are Volcano's if they name an action or a
//! plugin that only Volcano has.

mod converted;
mod queues;
mod table;
mod volcano;

use std::{
    io::{self, Write},
    path::Path,
};

use anyhow::bail;
use kube_batch_manifest::diagnostic::{Diagnostic, Severity};
use kube_batch_scheduler::{conf, registry::Registry};
use kube_batch_yaml::{self as yaml, Limits, Located, Problem};

use self::{
    queues::QueueFile,
    table::Effect,
    volcano::{Conversion, Note},
};
use crate::{commands::CheckConfigArgs, conf::ConfText, exit::Exit, terminal};

/// Runs the command.
pub(crate) fn run(args: &CheckConfigArgs, registry: &Registry) -> anyhow::Result<Exit> {
    let is_stdin = args.file == Path::new("-");
    let file = if is_stdin { ConfText::from_stdin()? } else { ConfText::read(&args.file)? };
    if let Some(queues) = queues::read(&file.name, &file.text) {
        return convert_queues(&file, &queues);
    }
    let root = yaml::parse(&file.text, &Limits::default());
    if args.volcano {
        return match root {
            Ok(root) => convert(&file, &root, registry),
            Err(error) => Ok(reject(&file, vec![error])),
        };
    }
    let errors = match file.parse(registry) {
        Ok(_) => {
            terminal::note(&format!("{} is a valid configuration", file.name));
            return Ok(Exit::Ok);
        }
        Err(errors) => errors,
    };
    let Ok(root) = root else { return Ok(reject(&file, errors)) };
    if let Some(name) = volcano::name_of_volcano(&root, registry) {
        terminal::note(&format!("{} names the {name}, which only Volcano has", file.name));
        return convert(&file, &root, registry);
    }
    let exit = reject(&file, errors);
    if let Some(kind) = root.get("kind").and_then(Located::as_str) {
        let hint =
            "the configuration is the text of one key of its data; see the examples of --help";
        terminal::note(&format!("{} is a manifest of kind {kind}: {hint}", file.name));
    }
    Ok(exit)
}

/// Prints queues as they are here, and what is different or wrong.
fn convert_queues(file: &ConfText, queues: &QueueFile) -> anyhow::Result<Exit> {
    if !queues.problems.is_empty() {
        queues.problems.iter().for_each(terminal::diagnostic);
        return Ok(Exit::Usage);
    }
    print_notes(file, queues.notes());
    io::stdout().lock().write_all(queues.to_yaml().as_bytes())?;
    Ok(Exit::Ok)
}

fn reject(file: &ConfText, errors: Vec<Problem>) -> Exit {
    terminal::error(&file.print_errors(errors));
    Exit::Usage
}

/// Prints the equivalent configuration, and what is different in it.
fn convert(file: &ConfText, root: &Located<'_>, registry: &Registry) -> anyhow::Result<Exit> {
    let Conversion { file: converted, notes } = match volcano::convert(root, registry) {
        Ok(conversion) => conversion,
        Err(errors) => return Ok(reject(file, errors)),
    };
    let text = converted.to_yaml();
    let problems = match conf::parse(&text, registry) {
        Ok(read) => read.warnings,
        Err(errors) => errors,
    };
    if let Some(problem) = problems.first() {
        bail!("the converted configuration is not valid, which is a bug: {problem}\n{text}");
    }
    print_notes(file, notes);
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Ok)
}

fn print_notes(file: &ConfText, notes: Vec<Note>) {
    for Note { line, column, effect, message } in notes {
        // Keys of the file can contain terminal escape codes, which the title does not.
        let title = Diagnostic::of_source(Severity::Warning, &*file.name, message).title();
        let message = format!("{}:{line}:{column}: {title}", file.name);
        match effect {
            Effect::Same => terminal::note(&message),
            Effect::Differs => terminal::warning(&message),
        }
    }
}
