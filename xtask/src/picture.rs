//! The picture of the README: what the scheduler does over some cycles, drawn from a simulation of
//! an example.

mod example;
mod story;
mod svg;
mod theme;

pub(crate) use self::theme::{THEMES, Theme};
use self::{story::simulate, svg::draw};

/// The generated pictures: path below the root, and content.
pub(crate) fn files() -> anyhow::Result<Vec<(String, String)>> {
    let story = simulate()?;
    let path = |theme: &Theme| format!("docs/images/borrow-and-reclaim-{}.svg", theme.name);
    Ok(THEMES.iter().map(|theme| (path(theme), draw(&story, theme))).collect())
}
