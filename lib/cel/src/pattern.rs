//! Regular expressions with the syntax of Go's `regexp`.
//!
//! The crate `regex` has the same ancestor and the same guarantees, but differs in details: `\d`,
//! `\w`, `\s` and `\b` are ASCII in Go, a `[` in a class is literal, `\Q...\E` quotes, and `a**` is
//! an error. [`translate`] writes a pattern as the crate needs it.

mod size;

use regex::{Regex, RegexBuilder};

use self::size::{Class, Cost, Measure};

/// The longest pattern: as long as an expression may be.
const MAX_LENGTH: usize = 10 * 1024;
/// The largest automaton of a pattern, in bytes: `.` a thousand times is 1 MB.
const MAX_BYTES: u64 = 2 << 20;
/// The most work that building the patterns of an expression may take: 40 ms.
pub(crate) const MAX_BUILD: u64 = 4_000_000;
/// The most repetitions that Go allows, also of those that are in each other.
const MAX_REPEAT: u32 = 1000;

const INVALID_REPEAT: &str = "invalid repeat count";
const TOO_LARGE: &str = "it is too large";

/// A regular expression that was read, and not built yet.
#[derive(Debug)]
pub(crate) struct Draft {
    translated: String,
    cost: Cost,
}

/// A compiled regular expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) regex: Regex,
    cost: Cost,
}

impl Draft {
    /// Reads a pattern in Go's syntax.
    ///
    /// # Errors
    ///
    /// What is wrong with the pattern, or that it is too large.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err(TOO_LARGE.to_owned());
        }
        let (translated, cost) = translate(text)?;
        if cost.repeats > u64::from(MAX_REPEAT) {
            return Err(INVALID_REPEAT.to_owned());
        }
        if cost.bytes > MAX_BYTES || cost.build > MAX_BUILD {
            return Err(TOO_LARGE.to_owned());
        }
        Ok(Self { translated, cost })
    }

    /// The work of [`Self::build`].
    pub(crate) const fn work(&self) -> u64 {
        self.cost.build
    }

    /// Compiles the pattern.
    ///
    /// # Errors
    ///
    /// What is wrong with the pattern.
    pub(crate) fn build(self) -> Result<Pattern, String> {
        let mut builder = RegexBuilder::new(&self.translated);
        // The size is bounded already; the limit is for what the measure does not know.
        let limit = 2 * usize::try_from(MAX_BYTES).unwrap_or(usize::MAX);
        match builder.size_limit(limit).dfa_size_limit(1 << 20).nest_limit(250).build() {
            Ok(regex) => Ok(Pattern { regex, cost: self.cost }),
            Err(regex::Error::CompiledTooBig(_)) => Err(TOO_LARGE.to_owned()),
            Err(error) => {
                let text = error.to_string();
                Err(text.lines().last().unwrap_or_default().to_owned())
            }
        }
    }
}

impl Pattern {
    /// The work of finding out whether a text matches, from its length in bytes.
    pub(crate) const fn match_work(&self, bytes: usize) -> usize {
        work(bytes, self.cost.active)
    }

    /// The work of finding where a text matches, from its length in bytes. The text is also read
    /// backwards, where every place of the pattern may be reached at once.
    pub(crate) const fn find_work(&self, bytes: usize) -> usize {
        work(bytes, self.cost.positions)
    }
}

/// A byte takes 15 ns for each place of the pattern that the text so far may lead to.
const fn work(bytes: usize, places: u64) -> usize {
    let places = places as usize;
    (bytes / 16 + 1).saturating_add(bytes.saturating_mul(places).saturating_mul(3) / 2)
}

/// Rewrites a pattern of Go for the crate `regex`, and measures it.
///
/// # Errors
///
/// If the pattern has something that only the crate knows.
fn translate(text: &str) -> Result<(String, Cost), String> {
    let measure = Measure::new(has_flag(text, 'i'), has_flag(text, 'm'));
    let out = String::with_capacity(text.len() + 16);
    let mut writer = Writer { rest: text, out, measure };
    writer.sequence()?;
    Ok((writer.out, writer.measure.finish(begins_text(text))))
}

/// Whether some group may have this flag.
fn has_flag(text: &str, flag: char) -> bool {
    text.split("(?").skip(1).any(|group| {
        let mut flags = group.chars().take_while(|c| c.is_ascii_alphabetic() || *c == '-');
        flags.any(|own| own == flag)
    })
}

/// Whether a pattern begins with an anchor, so that it matches at the beginning of a text only if it
/// has one alternative.
fn begins_text(text: &str) -> bool {
    let text = text.strip_prefix("(?i)").unwrap_or(text);
    let after = text.strip_prefix('^').or_else(|| text.strip_prefix("\\A"));
    after.is_some_and(|rest| !rest.starts_with(['*', '+', '?', '{']))
}

struct Writer<'t> {
    rest: &'t str,
    out: String,
    measure: Measure,
}

impl<'t> Writer<'t> {
    fn next(&mut self) -> Option<char> {
        let character = self.rest.chars().next()?;
        self.rest = &self.rest[character.len_utf8()..];
        Some(character)
    }

    fn sequence(&mut self) -> Result<(), String> {
        let mut follows_repeat = false;
        while let Some(character) = self.next() {
            let mut is_repeat = false;
            match character {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                ')' => {
                    self.measure.end_group();
                    self.out.push(')');
                }
                '|' => {
                    self.measure.alternative();
                    self.out.push('|');
                }
                '*' | '+' | '?' => {
                    is_repeat = true;
                    let low = u64::from(character == '+');
                    self.measure.repeat(low, (character == '?').then_some(1));
                    self.out.push(character);
                }
                '{' => match counted(self.rest)? {
                    Some((end, low, high)) => {
                        is_repeat = true;
                        self.measure.repeat(low, high);
                        self.out.push('{');
                        self.copy(end);
                    }
                    None => self.literal('{', "\\{"),
                },
                '}' => self.literal('}', "\\}"),
                '^' | '$' => {
                    self.measure.anchor();
                    self.out.push(character);
                }
                '.' => self.negated("."),
                other => {
                    self.measure.literal(other);
                    self.out.push(other);
                }
            }
            if is_repeat && follows_repeat {
                return Err("invalid nested repetition operator".to_owned());
            }
            if is_repeat && self.rest.starts_with('?') {
                self.copy(1);
            }
            follows_repeat = is_repeat;
        }
        Ok(())
    }

    /// Writes a character that the crate `regex` takes for something else unless it is escaped.
    fn literal(&mut self, character: char, written: &str) {
        self.measure.literal(character);
        self.out.push_str(written);
    }

    /// Writes a class of a few ranges of ASCII.
    fn few(&mut self, written: &str) {
        let mut class = Class::default();
        class.few();
        self.measure.class(&class);
        self.out.push_str(written);
    }

    fn negated(&mut self, written: &str) {
        self.measure.class(&Class::negated());
        self.out.push_str(written);
    }

    fn anchor(&mut self, written: &str) {
        self.measure.anchor();
        self.out.push_str(written);
    }

    fn copy(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.out.push_str(taken);
        self.rest = rest;
        taken
    }

    /// Flags of a group: Go has only `i`, `m`, `s` and `U`.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        self.measure.begin_group();
        let Some(flags) = self.rest.strip_prefix('?') else { return Ok(()) };
        let end = flags.find(|c: char| !c.is_ascii_alphabetic() && c != '-').unwrap_or(flags.len());
        let is_name = matches!(flags.chars().nth(end), Some('<' | '=' | '!'));
        if !is_name && flags[..end].chars().any(|flag| !"imsU-".contains(flag)) {
            return Err("invalid or unsupported Perl syntax".to_owned());
        }
        self.copy(1 + end);
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        let kind = self.next().ok_or("trailing backslash at end of expression")?;
        match kind {
            'd' => self.few("[0-9]"),
            'D' => self.negated("[^0-9]"),
            'w' => self.few("[0-9A-Za-z_]"),
            'W' => self.negated("[^0-9A-Za-z_]"),
            's' => self.few("[\\t\\n\\f\\r ]"),
            'S' => self.negated("[^\\t\\n\\f\\r ]"),
            'b' if self.rest.starts_with('{') => return Err("invalid escape".to_owned()),
            'b' => self.anchor("(?-u:\\b)"),
            // Only the one of Unicode is allowed in text; between ASCII characters it is the same.
            'B' => self.anchor("\\B"),
            'A' => self.anchor("\\A"),
            'z' => self.anchor("\\z"),
            'Q' => self.quoted(),
            other => {
                let mut class = Class::default();
                self.common_escape(other, &mut class)?;
                self.measure.class(&class);
            }
        }
        Ok(())
    }

    /// Escapes that are the same within and outside of a class.
    fn common_escape(&mut self, kind: char, class: &mut Class) -> Result<(), String> {
        match kind {
            'a' | 'f' | 't' | 'n' | 'r' | 'v' => {
                class.character(kind);
                self.push_escaped(kind);
            }
            'x' => {
                class.escaped();
                self.push_escaped(kind);
                self.argument(2)?;
            }
            'p' | 'P' => {
                self.push_escaped(kind);
                let name = self.argument(1)?;
                class.named(name.trim_matches(['{', '}']));
            }
            '0'..='7' => {
                class.escaped();
                self.octal(kind)?;
            }
            other if other.is_ascii_punctuation() => {
                class.character(other);
                self.push_escaped(other);
            }
            other => return Err(format!("invalid escape sequence: `\\{other}`")),
        }
        Ok(())
    }

    /// Copies what follows `\\x` or `\\p`: text in braces, or else at most `n` characters.
    fn argument(&mut self, n: usize) -> Result<&'t str, String> {
        let end = if self.rest.starts_with('{') {
            self.rest.find('}').ok_or("invalid escape sequence")? + 1
        } else {
            self.rest.chars().take(n).map(char::len_utf8).sum()
        };
        Ok(self.copy(end))
    }

    fn push_escaped(&mut self, kind: char) {
        self.out.push('\\');
        self.out.push(kind);
    }

    /// `\123`; a single digit other than 0 would be a back reference, which Go has not.
    fn octal(&mut self, first: char) -> Result<(), String> {
        let is_octal = |c: char| ('0'..='7').contains(&c);
        let length = self.rest.chars().take(2).take_while(|c| is_octal(*c)).count();
        if first != '0' && length == 0 {
            return Err("invalid escape sequence".to_owned());
        }
        let digits = format!("{first}{}", &self.rest[..length]);
        let code = u32::from_str_radix(&digits, 8).map_err(|error| error.to_string())?;
        self.out.push_str(&format!("\\x{{{code:x}}}"));
        self.rest = &self.rest[length..];
        Ok(())
    }

    /// `\Qtext\E`
    fn quoted(&mut self) {
        let (text, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
        text.chars().for_each(|character| self.measure.literal(character));
        self.out.push_str(&regex::escape(text));
        self.rest = rest;
    }

    /// A class, whose opening bracket was read.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        let mut class = Class::default();
        if self.rest.starts_with('^') {
            class.negate();
            self.copy(1);
        }
        let mut is_first = true;
        while let Some(character) = self.next() {
            match character {
                ']' if !is_first => {
                    self.out.push(']');
                    self.measure.class(&class);
                    return Ok(());
                }
                '[' if self.rest.starts_with(':') => {
                    let end = self.rest.find(":]").ok_or("missing closing ]")?;
                    class.few();
                    self.out.push('[');
                    self.copy(end + 2);
                }
                '[' | ']' | '&' | '~' | '^' => {
                    class.character(character);
                    self.push_escaped(character);
                }
                '\\' => self.class_escape(&mut class)?,
                '-' => {
                    class.range(self.rest.chars().next());
                    self.out.push('-');
                }
                other => {
                    class.character(other);
                    self.out.push(other);
                }
            }
            is_first = false;
        }
        Err("missing closing ]".to_owned())
    }

    fn class_escape(&mut self, class: &mut Class) -> Result<(), String> {
        let kind = self.next().ok_or("trailing backslash at end of expression")?;
        let set = match kind {
            'd' => "0-9",
            'D' => "[^0-9]",
            'w' => "0-9A-Za-z_",
            'W' => "[^0-9A-Za-z_]",
            's' => "\\t\\n\\f\\r ",
            'S' => "[^\\t\\n\\f\\r ]",
            other => return self.common_escape(other, class),
        };
        class.few();
        if kind.is_ascii_uppercase() {
            class.negate();
        }
        self.out.push_str(set);
        Ok(())
    }
}

/// What is at the beginning of `text`, if that is `n}`, `n,}` or `n,m}`: its length and the counts.
fn counted(text: &str) -> Result<Option<(usize, u64, Option<u64>)>, String> {
    let Some((inner, _)) = text.split_once('}') else { return Ok(None) };
    let (low, high) = inner.split_once(',').unwrap_or((inner, inner));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(low) || !(high.is_empty() || is_number(high)) {
        return Ok(None);
    }
    let count = |text: &str| {
        let count = text.parse().ok().filter(|count: &u32| *count <= MAX_REPEAT);
        count.map(u64::from).ok_or(INVALID_REPEAT)
    };
    let high = if high.is_empty() { None } else { Some(count(high)?) };
    Ok(Some((inner.len() + 1, count(low)?, high)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn built(pattern: &str) -> Result<Pattern, String> {
        Draft::new(pattern)?.build()
    }

    #[test]
    fn syntax_of_go_is_translated() {
        for (pattern, text, matches) in [
            (r"^\d$", "٣", false),
            (r"^\w$", "é", false),
            ("[[]", "[", true),
            ("^[a&&b]+$", "a&b", true),
            (r"\Qa.b\E", "axb", false),
            ("a{2", "a{2", true),
            (r"\p{Latin}", "é", true),
            (r"\101", "A", true),
            (r"[\W]", "é", true),
        ] {
            assert_eq!(built(pattern).unwrap().regex.is_match(text), matches, "{pattern}");
        }
    }

    #[test]
    fn what_go_does_not_know_is_an_error() {
        for pattern in [
            "(?x)a",
            "a++",
            "a**",
            r"\u0061",
            r"\Z",
            "x{1001}",
            "(?!a)",
            "(",
            "*",
            "(a{100}){11}",
            "(a{1,100}b?){1,100}",
            r"\1",
        ] {
            assert!(built(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn ordinary_patterns_of_go_are_not_too_large() {
        for pattern in [
            "^[^/]{1,253}$",
            "^.{1,1000}$",
            r"^\S{1,253}$",
            r"^\p{L}{1,10}$",
            r"^[\p{L}\p{N}_-]{1,20}$",
            r"^\w{1,1000}$",
            "^(?i)[a-z]{1,253}$",
            "(?i)^[а-я]{1,63}$",
            r"^(NVIDIA|AMD) .{0,200}$",
            r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.){0,8}[a-z]{1,63}$",
        ] {
            assert!(built(pattern).is_ok(), "{pattern}");
        }
    }

    #[test]
    fn patterns_that_take_long_to_build_are_refused_before() {
        for pattern in [
            format!("(?i){}", r"\PL".repeat(3000)),
            format!("(?i){}", "[é-\u{10ffff}]".repeat(100)),
            format!("(?i){}", r"[\x{80}-\x{10ffff}]".repeat(100)),
            "a?".repeat(4500),
            r"\pL{1,63}".to_owned(),
            "a".repeat(MAX_LENGTH + 1),
        ] {
            assert_eq!(Draft::new(&pattern).unwrap_err(), TOO_LARGE);
        }
    }

    #[test]
    fn a_search_takes_work_for_each_place_that_it_can_be_at() {
        let places = |pattern: &str| built(pattern).unwrap().match_work(1600) as u64 / 2400;
        // From the beginning of the text, a search is at one place.
        assert_eq!(places("^[^/]{1,253}$"), 1);
        assert_eq!(places("^GPU-[0-9a-f]{8}-[0-9a-f]{4}$"), 1);
        assert_eq!(places("^(?:ab){5,}c$"), 2);
        assert_eq!(places("^[a-z]{1,5}-[0-9]{8}$"), 7);
        // These can begin anywhere in the text.
        for pattern in ["1[01]{90}", "^.*1[01]{89}", "(?m)^1[01]{90}", "^a|[01]{90}", "^*1[01]{90}"]
        {
            assert!(places(pattern) >= 91, "{pattern}: {}", places(pattern));
        }
    }

    /// Patterns with repetitions, alternatives, groups, classes and flags.
    fn any_pattern() -> impl Strategy<Value = String> {
        let atom = prop_oneof![
            "[a-c.é]",
            prop_oneof![
                Just(r"\pL"),
                Just(r"\PM"),
                Just(r"\p{Greek}"),
                Just(r"\p{Han}"),
                Just("[a-z0-9_]"),
                Just("[^a]"),
                Just(r"[\d\s]"),
                Just(r"[^\pN]"),
                Just("[é-\u{ffff}]"),
                Just(r"\W"),
                Just("^"),
                Just("$"),
                Just(r"\b"),
                Just(r"\x{e9}"),
                Just(r"\xe9"),
                Just(r"\101"),
                Just(r"\Qa.b\E"),
                Just("k"),
                Just("[s-t]"),
            ]
            .prop_map(str::to_owned),
        ];
        atom.prop_recursive(5, 24, 4, |inner| {
            let repeat = prop_oneof![
                Just("*".to_owned()),
                Just("+?".to_owned()),
                Just("?".to_owned()),
                (0_u32..5, 5_u32..40).prop_map(|(low, high)| format!("{{{low},{high}}}")),
                (1_u32..20).prop_map(|low| format!("{{{low},}}")),
            ];
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..5).prop_map(|parts| parts.concat()),
                prop::collection::vec(inner.clone(), 2..4)
                    .prop_map(|parts| format!("(?:{})", parts.join("|"))),
                inner.clone().prop_map(|part| format!("({part})")),
                inner.clone().prop_map(|part| format!("(?i:{part})")),
                (inner.clone(), repeat.clone())
                    .prop_map(|(part, repeat)| format!("(?:{part}){repeat}")),
                // This repeats the last item of the part, if it can be repeated.
                (inner, repeat).prop_map(|(part, repeat)| format!("{part}{repeat}")),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_automaton_is_larger_than_the_measure_says(pattern in any_pattern()) {
            let Ok(draft) = Draft::new(&pattern) else { return Ok(()) };
            let limit = usize::try_from(draft.cost.bytes).unwrap() + 1024;
            let built = RegexBuilder::new(&draft.translated).size_limit(limit).build();
            prop_assert!(!matches!(built, Err(regex::Error::CompiledTooBig(_))), "{limit} bytes");
        }
    }
}
