//! The picture of the README: what the scheduler does over some cycles, drawn from a simulation of
//! an example.

mod example;
mod story;
mod svg;

use self::{
    story::simulate,
    svg::{Theme, draw},
};

const THEMES: [Theme; 2] = [
    Theme {
        name: "light",
        text: "#1f2328",
        faint: "#59636e",
        lane: "#eaeef2",
        jobs: ["#0072b2", "#b35900", "#00795a", "#8f4574"],
        on_job: "#ffffff",
    },
    Theme {
        name: "dark",
        text: "#f0f6fc",
        faint: "#9198a1",
        lane: "#21262d",
        jobs: ["#56b4e9", "#e69f00", "#2fc79a", "#dd94bf"],
        on_job: "#0d1117",
    },
];

/// The generated pictures: path below the root, and content.
pub(crate) fn files() -> anyhow::Result<Vec<(String, String)>> {
    let story = simulate()?;
    let path = |theme: &Theme| format!("docs/images/borrow-and-reclaim-{}.svg", theme.name);
    Ok(THEMES.iter().map(|theme| (path(theme), draw(&story, theme))).collect())
}
