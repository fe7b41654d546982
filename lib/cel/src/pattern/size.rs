//! How large a regular expression becomes, and what it takes to build it and to search with it:
//! known from its text, before anything is built.
//!
//! The bounds are those of the crate `regex` 1.13, measured with its largest classes. Building takes
//! time for each item, and for each byte of the automaton, in which repeated items are written out.
//! A search goes through all places of the automaton that the text so far may lead to.

/// The bytes of the automaton for one literal character of ASCII.
const LITERAL: u64 = 48;
/// The bytes for an anchor, or for the choice between two ways.
const CHOICE: u64 = 72;
/// The bytes for the two ends of a group.
const GROUP: u64 = 160;
/// The bytes for a class that has characters beyond ASCII, and for each of its ranges.
const CLASS: u64 = 1300;
const RANGE: u64 = 66;

/// A unit of work is about 10 ns.
const UNITS_OF_LITERAL: u64 = 30;
/// Building any other item: 3 µs.
const UNITS_OF_ITEM: u64 = 300;
/// An item that may be missing: the crate looks for literals that begin a match, 15 µs.
const UNITS_OF_CHOICE: u64 = 1500;
/// A range of characters beyond ASCII in any case: each character is looked up, 8 ms for all.
const UNITS_OF_FOLDED_RANGE: u64 = 800_000;

/// The size of a pattern or a part of it. Repeated parts are counted as often as they are repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Bytes of the automaton.
    pub(super) bytes: u64,
    /// Characters and classes.
    pub(super) positions: u64,
    /// How many positions a search can be at, at once, if the part begins at one place.
    pub(super) active: u64,
    /// The largest product of the counts of repetitions that are in each other; 0 for none.
    repeats: u64,
    /// The characters of the shortest and the longest match; the longest may have no end.
    shortest: u64,
    longest: u64,
}

impl Size {
    const fn atom(bytes: u64) -> Self {
        Self { bytes, positions: 1, active: 1, repeats: 0, shortest: 1, longest: 1 }
    }

    const fn anchor() -> Self {
        Self { bytes: CHOICE, positions: 0, active: 0, repeats: 0, shortest: 0, longest: 0 }
    }

    /// In how many places it can end, less one, if it begins in one.
    const fn slack(&self) -> u64 {
        if self.longest == u64::MAX { u64::MAX } else { self.longest - self.shortest }
    }

    /// This, and then `next`.
    fn then(self, next: Self) -> Self {
        let begins = self.slack().saturating_add(1);
        // After a part of one length, a search has left that part.
        let active = if begins == 1 {
            self.active.max(next.active)
        } else {
            let of_next = next.active.saturating_mul(begins).min(next.positions);
            self.active.saturating_add(of_next)
        };
        Self {
            bytes: self.bytes.saturating_add(next.bytes),
            positions: self.positions.saturating_add(next.positions),
            active,
            repeats: self.repeats.max(next.repeats),
            shortest: self.shortest.saturating_add(next.shortest),
            longest: self.longest.saturating_add(next.longest),
        }
    }

    /// This, or `other`.
    fn or(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes).saturating_add(CHOICE),
            positions: self.positions.saturating_add(other.positions),
            active: self.active.saturating_add(other.active),
            repeats: self.repeats.max(other.repeats),
            shortest: self.shortest.min(other.shortest),
            longest: self.longest.max(other.longest),
        }
    }

    /// This at least `low` and at most `high` times.
    fn repeated(self, low: u64, high: Option<u64>) -> Self {
        let copies = high.unwrap_or_else(|| low.max(1));
        let positions = self.positions.saturating_mul(copies);
        let is_one_copy_at_a_time = copies <= 1 || self.slack() == 0 && self.shortest > 0;
        let is_loop = high.is_none() && self.slack() > 0;
        Self {
            bytes: self.bytes.saturating_add(CHOICE).saturating_mul(copies),
            positions,
            active: if is_one_copy_at_a_time && !is_loop { self.active } else { positions },
            repeats: self.repeats.max(1).saturating_mul(high.unwrap_or(low).max(1)),
            shortest: self.shortest.saturating_mul(low),
            longest: match high {
                Some(high) => self.longest.saturating_mul(high),
                None if self.longest == 0 => 0,
                None => u64::MAX,
            },
        }
    }
}

/// A group whose end was not read yet.
#[derive(Debug, Default)]
struct Open {
    /// The alternatives that are complete.
    before: Option<Size>,
    /// The one that is read, without its last item: what follows may repeat that.
    sequence: Size,
    last: Size,
}

impl Open {
    fn alternative(&mut self) -> Size {
        std::mem::take(&mut self.sequence).then(std::mem::take(&mut self.last))
    }

    fn whole(mut self) -> Size {
        let last = self.alternative();
        self.before.map_or(last, |before| before.or(last))
    }
}

/// Adds up the size of a pattern while it is read.
#[derive(Debug, Default)]
pub(super) struct Measure {
    outer: Vec<Open>,
    open: Open,
    /// Whether letters match in either case somewhere.
    folds_case: bool,
    /// Whether `^` may match within the text.
    has_lines: bool,
    units: u64,
}

impl Measure {
    /// A measure of a pattern, which has a flag for either case or not.
    pub(super) fn new(folds_case: bool, has_lines: bool) -> Self {
        Self { folds_case, has_lines, ..Self::default() }
    }

    fn push(&mut self, item: Size, units: u64) {
        let before = std::mem::replace(&mut self.open.last, item);
        self.open.sequence = self.open.sequence.then(before);
        self.units = self.units.saturating_add(units);
    }

    pub(super) fn literal(&mut self, character: char) {
        let bytes = LITERAL * character.len_utf8() as u64;
        match self.folds_case {
            false => self.push(Size::atom(bytes), UNITS_OF_LITERAL),
            // A letter has up to three other forms.
            true => self.push(Size::atom(4 * bytes + LITERAL), UNITS_OF_ITEM),
        }
    }

    pub(super) fn anchor(&mut self) {
        self.push(Size::anchor(), UNITS_OF_ITEM);
    }

    pub(super) fn class(&mut self, class: &Class) {
        let mut bytes = class.bytes();
        let mut units = bytes / 10;
        if self.folds_case {
            // Two letters of ASCII have another form that is not.
            bytes = bytes.saturating_mul(2).saturating_add(4 * RANGE);
            let of_ranges = class.wide_ranges.saturating_mul(UNITS_OF_FOLDED_RANGE);
            units = bytes.saturating_add(of_ranges);
        }
        self.push(Size::atom(bytes), UNITS_OF_ITEM.saturating_add(units));
    }

    pub(super) fn repeat(&mut self, low: u64, high: Option<u64>) {
        self.open.last = self.open.last.repeated(low, high);
        let units = if low == 0 { UNITS_OF_CHOICE } else { UNITS_OF_ITEM };
        self.units = self.units.saturating_add(units);
    }

    pub(super) fn alternative(&mut self) {
        let last = self.open.alternative();
        self.open.before = Some(self.open.before.map_or(last, |before| before.or(last)));
        self.units = self.units.saturating_add(UNITS_OF_CHOICE);
    }

    pub(super) fn begin_group(&mut self) {
        self.outer.push(std::mem::take(&mut self.open));
    }

    /// Ends a group. That none was begun is found when the pattern is built.
    pub(super) fn end_group(&mut self) {
        let Some(outer) = self.outer.pop() else { return };
        let mut group = std::mem::replace(&mut self.open, outer).whole();
        group.bytes = group.bytes.saturating_add(GROUP);
        self.push(group, UNITS_OF_ITEM);
    }

    /// The size of the pattern. `begins_text` says that it can match at the beginning of a text only.
    pub(super) fn finish(mut self, begins_text: bool) -> Cost {
        while !self.outer.is_empty() {
            self.end_group();
        }
        let is_one = self.open.before.is_none() && begins_text && !self.has_lines;
        let size = self.open.whole();
        let active = if is_one { size.active } else { size.positions };
        // 25 ns for each byte of a large automaton, and 20 µs for the first search.
        let of_automaton = size.bytes.saturating_mul(5) / 2;
        let build = self.units.saturating_add(of_automaton).saturating_add(2000);
        Cost { bytes: size.bytes, positions: size.positions, active, repeats: size.repeats, build }
    }
}

/// What a pattern takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    /// Bytes of its automaton, at most.
    pub(super) bytes: u64,
    /// Places in the automaton.
    pub(super) positions: u64,
    /// Places where a search from the beginning of the text can be at once.
    pub(super) active: u64,
    /// The largest product of counts of repetitions in each other.
    pub(super) repeats: u64,
    /// Units of work for building it.
    pub(super) build: u64,
}

/// What is known of a class of characters.
#[derive(Clone, Debug, Default)]
pub(super) struct Class {
    /// Characters and ranges of them.
    ranges: u64,
    /// Ranges with an end that is not ASCII.
    wide_ranges: u64,
    /// Bytes for named sets of characters.
    named: u64,
    /// Whether there are characters beyond ASCII.
    is_wide: bool,
    /// Whether the last item was one.
    follows_wide: bool,
}

impl Class {
    /// All characters but a few.
    pub(super) fn negated() -> Self {
        Self { ranges: 1, is_wide: true, ..Self::default() }
    }

    pub(super) const fn negate(&mut self) {
        self.is_wide = true;
    }

    pub(super) fn character(&mut self, character: char) {
        self.ranges += 1;
        self.follows_wide = !character.is_ascii();
        self.is_wide |= self.follows_wide;
    }

    /// A character that is written as a number.
    pub(super) const fn escaped(&mut self) {
        self.ranges += 1;
        self.is_wide = true;
        self.follows_wide = true;
    }

    /// A set of a few ranges of ASCII, such as `\s`.
    pub(super) const fn few(&mut self) {
        self.ranges += 5;
    }

    /// A dash, and the character after it: perhaps a range from the one before. It is a wide one
    /// unless both ends are plain characters of ASCII.
    pub(super) fn range(&mut self, next: Option<char>) {
        self.ranges += 1;
        if self.follows_wide || next.is_some_and(|c| !c.is_ascii() || c == '\\') {
            self.wide_ranges += 1;
        }
    }

    /// A named set such as `L` in `\pL`.
    pub(super) fn named(&mut self, name: &str) {
        self.is_wide = true;
        self.named = self.named.saturating_add(bytes_of_set(name));
    }

    const fn bytes(&self) -> u64 {
        let of_ranges = self.ranges.saturating_mul(RANGE);
        let own = if self.is_wide { CLASS } else { LITERAL };
        own.saturating_add(of_ranges).saturating_add(self.named)
    }
}

/// The bytes of the automaton for a set of characters or for all others, at most. Measured.
fn bytes_of_set(name: &str) -> u64 {
    let name = name.trim_start_matches('^');
    match name.as_bytes() {
        [b'Z' | b'z', ..] if name.len() <= 2 => 3_000,
        [b'N' | b'n', ..] if name.len() <= 2 => 22_000,
        [b'P' | b'p', ..] if name.len() <= 2 => 25_000,
        [b'S' | b's', ..] if name.len() <= 2 => 23_000,
        [b'M' | b'm', ..] if name.len() <= 2 => 29_000,
        _ if name.len() <= 2 => 54_000,
        _ if SMALL_SCRIPTS.contains(&name) => 7_000,
        _ => 68_000,
    }
}

/// Scripts that are often used and have few ranges.
const SMALL_SCRIPTS: [&str; 12] = [
    "Arabic",
    "Armenian",
    "Cyrillic",
    "Devanagari",
    "Greek",
    "Han",
    "Hangul",
    "Hebrew",
    "Hiragana",
    "Katakana",
    "Latin",
    "Thai",
];
