//! Shows what was read of a cluster: once, or again after each change.

use std::{
    cell::Cell,
    io::{self, IsTerminal, Write},
};

use kube_batch_api::kind::Kind;
use serde::Serialize;

use crate::{
    commands::{Format, ShowArgs},
    exit::Exit,
    live::{ClusterAccess, ClusterTarget, Lists},
};

/// What is shown: the data, and how it looks.
pub(crate) struct Shown<'a, T> {
    pub(crate) exit: Exit,
    pub(crate) data: &'a T,
    pub(crate) print: &'a dyn Fn(&mut dyn Write) -> io::Result<()>,
}

impl<T: Serialize> Shown<'_, T> {
    /// Writes it, and returns how the command ends.
    pub(crate) fn write(&self, out: &mut dyn Write, format: Format) -> anyhow::Result<Exit> {
        match format {
            Format::Table => (self.print)(out)?,
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, self.data).map_err(io::Error::from)?;
                writeln!(out)?;
            }
            Format::Yaml => write!(out, "{}", serde_saphyr::to_string(self.data)?)?,
        }
        Ok(self.exit)
    }
}

/// Clears a terminal, and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Reads some kinds, and writes what `write` makes of them; with `--watch` again after each change.
pub(crate) fn show(
    args: &ShowArgs,
    target: &ClusterTarget,
    kinds: &[Kind],
    cluster: &dyn ClusterAccess,
    write: &mut dyn FnMut(&mut dyn Write, Lists) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    if !args.watch {
        return once(cluster.read(target, kinds)?, "", write);
    }
    let exit = Cell::new(Exit::Ok);
    let is_terminal = io::stdout().is_terminal();
    let mut before = if is_terminal { CLEAR } else { "" };
    cluster.follow(target, kinds, &mut |lists| {
        exit.set(once(lists, before, write)?);
        before = if is_terminal { CLEAR } else { "\n" };
        Ok(())
    })?;
    Ok(exit.get())
}

/// Writes all at once, so that a terminal does not flicker.
fn once(
    lists: Lists,
    before: &str,
    write: &mut dyn FnMut(&mut dyn Write, Lists) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let mut text = before.as_bytes().to_vec();
    let exit = write(&mut text, lists)?;
    let mut out = anstream::stdout().lock();
    out.write_all(&text)?;
    out.flush()?;
    Ok(exit)
}
