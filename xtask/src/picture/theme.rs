//! The colours of the pictures, in a light and in a dark appearance.

/// Colours of one appearance.
pub(crate) struct Theme {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) faint: &'static str,
    pub(crate) lane: &'static str,
    /// One for each job, in order of appearance. From Okabe and Ito's palette, which people with
    /// impaired colour vision can tell apart; darker or lighter for contrast with the text on them.
    pub(crate) jobs: [&'static str; 4],
    /// The background.
    pub(crate) on_job: &'static str,
}

/// The appearances of every picture.
pub(crate) const THEMES: [Theme; 2] = [
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
