//! YAML: reads the events of the parser and resolves anchors and tags.
#![expect(clippy::wildcard_enum_match_arm, reason = "the events are the parser's, and will grow")]

use std::{borrow::Cow, collections::HashMap};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use crate::{
    problem::{Problem, shorten},
    scalar::{Number, Plain, boolean_word},
    token::{Limits, NextKey, Opened, Position, Shape, What, too_deep},
    value::{Key, Located, Value},
};

/// Prefix of the tags that YAML itself defines.
const YAML_TAGS: &str = "tag:yaml.org,2002:";

pub(crate) struct Yaml<'a> {
    parser: Parser<'a, StrInput<'a>>,
    peeked: Option<(Event<'a>, Span)>,
    first_line: u32,
    limits: Limits,
    anchors: HashMap<usize, Anchored<'a>>,
    /// The weight of all copies so far.
    copied: usize,
    /// Whether values are skipped: aliases in them may refer to what was skipped before, and stand for nothing.
    skips: bool,
    end_offset: usize,
}

struct Anchored<'a> {
    value: Located<'a>,
    weight: usize,
    height: usize,
}

impl<'a> Yaml<'a> {
    pub(crate) fn new(text: &'a str, first_line: u32, limits: &Limits) -> Self {
        // One more than allowed, so that this module reports the position of the error.
        let mut options = granit_parser::options! {
            flow_nesting_limit: limits.depth + 1,
            block_nesting_limit: limits.depth + 1,
        };
        options.set_emit_comments(false);
        Self {
            parser: Parser::new_from_str_with_options(text, options),
            peeked: None,
            first_line,
            limits: *limits,
            anchors: HashMap::new(),
            copied: 0,
            skips: false,
            end_offset: 0,
        }
    }

    pub(crate) fn shape(&mut self) -> Result<Shape, Problem> {
        Ok(match &self.peek()?.0 {
            Event::SequenceStart(..) => Shape::Sequence,
            Event::MappingStart(..) => Shape::Mapping,
            Event::Scalar(..) | Event::Alias(_) => Shape::Scalar,
            _ => Shape::End,
        })
    }

    pub(crate) fn position(&mut self) -> Result<Position, Problem> {
        let start = self.peek()?.1.start;
        let (line, column) = self.place(&start);
        Ok(Position { line, column, offset: start.byte_offset().unwrap_or_default() })
    }

    /// Begins or ends a part that is skipped.
    pub(crate) const fn set_skips(&mut self, skips: bool) {
        self.skips = skips;
    }

    pub(crate) const fn end_offset(&self) -> usize {
        self.end_offset
    }

    pub(crate) fn open(&mut self) -> Result<Opened<'a>, Problem> {
        let (event, span) = self.next()?;
        let (line, column) = self.place(&span.start);
        let opened = |anchor: usize, what| {
            let anchor = (anchor != 0).then_some(anchor);
            Opened { line, column, anchor, what }
        };
        let result = match event {
            Event::Scalar(text, style, anchor, tag) => resolve(text, style, tag.as_deref())
                .map(|value| opened(anchor, What::Scalar(value))),
            Event::Alias(_) if self.skips => Ok(opened(0, What::Scalar(Value::Null))),
            Event::Alias(anchor) => {
                return self
                    .copy(anchor, line, column)
                    .map(|(value, height)| opened(0, What::Alias(value, height)));
            }
            Event::SequenceStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), "seq").map(|()| opened(anchor, What::Sequence))
            }
            Event::MappingStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), "map").map(|()| opened(anchor, What::Mapping))
            }
            _ => Err("the file is empty".to_owned()),
        };
        result.map_err(|message| Problem { line, column, path: String::new(), message })
    }

    pub(crate) fn next_key(&mut self) -> Result<Option<NextKey<'a>>, Problem> {
        let (event, span) = self.next()?;
        let (line, column) = self.place(&span.start);
        let key = |text| Key { text, line, column };
        let message = "a key must be a string";
        let misplaced = || Problem { line, column, path: String::new(), message: message.into() };
        match event {
            Event::MappingEnd => Ok(None),
            Event::Scalar(text, ScalarStyle::Plain, _, tag)
                if text == "<<" && tag.as_ref().is_none_or(|tag| is_yaml_tag(tag, "merge")) =>
            {
                Ok(Some(NextKey::Merge(key(text))))
            }
            Event::Scalar(text, style, anchor, tag) => {
                if anchor != 0 {
                    let value = resolve(text.clone(), style, tag.as_deref());
                    let value = value.unwrap_or_else(|_| Value::String(text.clone()));
                    self.keep(anchor, &Located { value, line, column })?;
                }
                Ok(Some(NextKey::Key(key(text))))
            }
            Event::Alias(_) if self.skips => Ok(Some(NextKey::Key(key("".into())))),
            Event::Alias(anchor) => match self.copy(anchor, line, column)?.0.value {
                Value::String(text) => Ok(Some(NextKey::Key(key(text)))),
                Value::Number(number) => Ok(Some(NextKey::Key(key(number.into_text())))),
                Value::Null | Value::Bool(_) | Value::Sequence(_) | Value::Mapping(_) => {
                    Err(misplaced())
                }
            },
            _ => Err(misplaced()),
        }
    }

    pub(crate) fn next_item(&mut self) -> Result<bool, Problem> {
        let at_end = matches!(self.peek()?.0, Event::SequenceEnd);
        if at_end {
            self.next()?;
        }
        Ok(!at_end)
    }

    pub(crate) fn finish(&mut self) -> Result<(), Problem> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(()),
                Event::DocumentEnd => {}
                _ => {
                    let (line, column) = self.place(&span.start);
                    let message = "a second document starts here".to_owned();
                    return Err(Problem { line, column, path: String::new(), message });
                }
            }
        }
    }

    /// Stores a value under its anchor.
    pub(crate) fn keep(&mut self, anchor: usize, value: &Located<'a>) -> Result<(), Problem> {
        let (weight, height) = measure(value);
        self.count_copies(weight, value.line, value.column)?;
        self.anchors.insert(anchor, Anchored { value: value.clone(), weight, height });
        Ok(())
    }

    fn copy(
        &mut self,
        anchor: usize,
        line: u32,
        column: u32,
    ) -> Result<(Located<'a>, usize), Problem> {
        let Some(weight) = self.anchors.get(&anchor).map(|anchored| anchored.weight) else {
            let message = "an alias cannot be inside its own anchor".to_owned();
            return Err(Problem { line, column, path: String::new(), message });
        };
        self.count_copies(weight, line, column)?;
        let anchored = &self.anchors[&anchor];
        Ok((anchored.value.clone(), anchored.height))
    }

    fn count_copies(&mut self, weight: usize, line: u32, column: u32) -> Result<(), Problem> {
        self.copied += weight;
        if self.copied > self.limits.copies {
            let message =
                format!("anchors and aliases copy more than {} values", self.limits.copies);
            return Err(Problem { line, column, path: String::new(), message });
        }
        Ok(())
    }

    fn peek(&mut self) -> Result<&(Event<'a>, Span), Problem> {
        let event = match self.peeked.take() {
            Some(event) => event,
            None => self.pull()?,
        };
        Ok(self.peeked.insert(event))
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Problem> {
        let event = match self.peeked.take() {
            Some(event) => event,
            None => self.pull()?,
        };
        // The end of a block collection is an empty span at the start of the next event.
        let is_empty = event.1.start.byte_offset() == event.1.end.byte_offset();
        if let (false, Some(end)) = (is_empty, event.1.end.byte_offset()) {
            self.end_offset = end;
        }
        Ok(event)
    }

    /// The next event that is part of a value or ends the text.
    fn pull(&mut self) -> Result<(Event<'a>, Span), Problem> {
        loop {
            match self.parser.next_event() {
                Some(Ok((Event::StreamStart | Event::DocumentStart(..), _))) => {}
                Some(Ok(event)) => return Ok(event),
                Some(Err(error)) => return Err(self.syntax_problem(&error)),
                None => return Ok((Event::StreamEnd, Span::default())),
            }
        }
    }

    fn syntax_problem(&self, error: &ScanError) -> Problem {
        let (line, column) = self.place(error.marker());
        let message = match error.kind() {
            ErrorKind::RecursionLimitExceeded => too_deep(self.limits.depth),
            ErrorKind::UnknownAnchor => "the alias refers to an unknown anchor".to_owned(),
            other => format!("malformed YAML: {other}"),
        };
        Problem { line, column, path: String::new(), message }
    }

    fn place(&self, marker: &granit_parser::Marker) -> (u32, u32) {
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let line = small(marker.line()).saturating_add(self.first_line).saturating_sub(1);
        (line, small(marker.col()).saturating_add(1))
    }
}

/// Text of this length counts as one more value, so that copies of long text are limited too.
const BYTES_PER_VALUE: usize = 64;

/// The number of values in a value, itself included, and the levels of nesting in it.
fn measure(value: &Located<'_>) -> (usize, usize) {
    let text = |text: &str| text.len() / BYTES_PER_VALUE;
    let inner = |(weight, height): (usize, usize), value: &Located<'_>| {
        let (more, deep) = measure(value);
        (weight + more, height.max(deep + 1))
    };
    match &value.value {
        Value::Null | Value::Bool(_) => (1, 0),
        Value::Number(number) => (1 + text(number.text()), 0),
        Value::String(string) => (1 + text(string), 0),
        Value::Sequence(items) => items.iter().fold((1, 1), inner),
        Value::Mapping(entries) => entries.iter().fold((1, 1), |(weight, height), entry| {
            inner((weight + text(&entry.key.text), height), &entry.value)
        }),
    }
}

/// The value of a scalar, or an error message.
fn resolve<'a>(
    text: Cow<'a, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
) -> Result<Value<'a>, String> {
    let Some(tag) = tag else {
        return Ok(if style == ScalarStyle::Plain { plain(text) } else { Value::String(text) });
    };
    if is_non_specific(tag) {
        return Ok(Value::String(text));
    }
    let name = tag.suffix_in_namespace(YAML_TAGS);
    let typed = |name: &str, value: Value<'a>| match (name, value) {
        ("null", Value::Null) => Some(Value::Null),
        ("bool", Value::Bool(value)) => Some(Value::Bool(value)),
        ("bool", Value::String(word)) => boolean_word(&word).map(Value::Bool),
        ("float", Value::Number(number)) => Some(Value::Number(number)),
        ("int", Value::Number(number)) if number.is_whole() => Some(Value::Number(number)),
        _ => None,
    };
    match name.as_deref() {
        Some("str" | "binary" | "timestamp") => Ok(Value::String(text)),
        Some(name @ ("null" | "bool" | "float" | "int")) => {
            let shown = shorten(&text);
            let value = typed(name, plain(text));
            value.ok_or_else(|| format!("cannot read {shown:?} as {}", tag.original()))
        }
        _ => Err(unsupported(tag)),
    }
}

fn plain(text: Cow<'_, str>) -> Value<'_> {
    match Plain::of(&text) {
        Plain::Null => Value::Null,
        Plain::Bool(value) => Value::Bool(value),
        Plain::Number => Value::Number(Number::new(text)),
        Plain::Text => Value::String(text),
    }
}

fn check_tag(tag: Option<&Tag>, expected: &str) -> Result<(), String> {
    match tag {
        Some(tag) if !is_non_specific(tag) && !is_yaml_tag(tag, expected) => Err(unsupported(tag)),
        _ => Ok(()),
    }
}

fn is_yaml_tag(tag: &Tag, name: &str) -> bool {
    tag.suffix_in_namespace(YAML_TAGS).is_some_and(|suffix| suffix == name)
}

/// The tag `!` alone, which makes any scalar a string.
fn is_non_specific(tag: &Tag) -> bool {
    matches!(tag.parts(), ("", "!") | ("!", ""))
}

fn unsupported(tag: &Tag) -> String {
    format!("the tag {} is not supported here", shorten(&tag.original()))
}

#[cfg(test)]
mod tests {
    use crate::{Limits, Located, Problem, Stream, parse};
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Located<'_>, Problem> {
        parse(text, &Limits::default())
    }

    fn json(text: &str) -> serde_json::Value {
        read(text).unwrap_or_else(|problem| panic!("{problem}\n{text}")).to_json()
    }

    fn message(text: &str) -> String {
        read(text).map(|value| value.to_json()).expect_err(text).to_string()
    }

    #[test]
    fn values_have_positions() {
        let text = "# first\nspec:\n  containers:\n  - name: main\n    ports: [80, ä: 443]\n  -\n";
        let value = read(text).expect("YAML");
        let place = |path: &str| {
            let found = value.nearest(path);
            (found.line, found.column)
        };
        assert_eq!(place(""), (2, 1));
        assert_eq!(place("spec.containers[0]"), (4, 5));
        assert_eq!(place("spec.containers[main].name"), (4, 11));
        assert_eq!(place("spec.containers[0].ports[1].ä"), (5, 20));
        assert_eq!(place("spec.containers[1]"), (6, 4));
        assert_eq!(place("spec.containers[7].name"), place("spec.containers"));
    }

    #[test]
    fn anchors_aliases_and_merge_keys_are_resolved() {
        let text = "base: &b {x: 1, y: &n two}\nall: [*b, *n]\nmore: {<<: *b, x: 3}\n\
                    many: {<<: [{z: 1}, *b, {z: 2}]}\n&k key: {*k : 1}\n";
        let expected = serde_json::json!({
            "base": {"x": 1, "y": "two"},
            "all": [{"x": 1, "y": "two"}, "two"],
            "more": {"x": 3, "y": "two"},
            "many": {"z": 1, "x": 1, "y": "two"},
            "key": {"key": 1},
        });
        assert_eq!(json(text), expected);
    }

    #[test]
    fn tags_give_the_type_of_a_scalar() {
        let text = "[!!str 1, ! 2, !!int '3', !!float '4', !!bool 'on', !!null '', !!binary aGk=, \
                    !!map {}, !!seq []]";
        let expected = serde_json::json!(["1", "2", 3, 4, true, null, "aGk=", {}, []]);
        assert_eq!(json(text), expected);
        assert_eq!(message("a: !!int three"), "line 1, column 10: cannot read \"three\" as !!int");
        assert_eq!(
            message("a: !vault x"),
            "line 1, column 11: the tag !vault is not supported here"
        );
    }

    #[test]
    fn malformed_text_is_reported() {
        for (text, expected) in [
            ("", "line 1, column 1: the file is empty"),
            (
                "a: b: c",
                "line 1, column 5: malformed YAML: mapping values are not allowed in this context",
            ),
            ("a: *x", "line 1, column 4: the alias refers to an unknown anchor"),
            ("a: &x [*x]", "line 1, column 8: an alias cannot be inside its own anchor"),
            ("[a]: b", "line 1, column 1: a key must be a string"),
            ("a: {{ .Values.x }}", "line 1, column 5: a key must be a string"),
            ("a: 1\nb: 2\na: 3", "line 3, column 1: duplicate key \"a\""),
            (
                "{<<: 1}",
                "line 1, column 6: the merge key << takes a mapping or a sequence of mappings",
            ),
            ("--- 1\n--- 2\n", "line 2, column 5: a second document starts here"),
        ] {
            assert_eq!(message(text), expected, "{text:?}");
        }
        let long: String = (0..100).map(|n| format!("k{n}: 1\n")).collect();
        assert_eq!(message(&format!("{long}k7: 2\n")), "line 101, column 1: duplicate key \"k7\"");
    }

    #[test]
    fn nesting_has_a_limit_in_every_notation() {
        let flow = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
        let block = |n: usize| format!("{}1", "- ".repeat(n));
        let indented =
            |n: usize| (0..n).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>();
        let aliased = |n: usize| {
            let steps = (1..n).map(|step| format!("- &a{step} [*a{}]\n", step - 1));
            format!("- &a0 []\n{}", steps.collect::<String>())
        };
        for nested in [&flow as &dyn Fn(usize) -> String, &block, &indented, &aliased] {
            assert!(read(&nested(120)).is_ok());
            for n in [130, 10_000] {
                let text = nested(n);
                let problem = read(&text).map_err(|problem| problem.message);
                assert_eq!(problem, Err("is nested more than 128 levels deep".to_owned()));
            }
        }
    }

    #[test]
    fn copies_have_a_limit() {
        let expected = "anchors and aliases copy more than 100000 values";
        let mut bomb = "a0: &a0 [x, x]\n".to_owned();
        for level in 1..40 {
            let before = level - 1;
            bomb += &format!("a{level}: &a{level} [*a{before}, *a{before}, *a{before}]\n");
        }
        assert!(message(&bomb).ends_with(expected));
        let text = format!("a: &a \"{}\\n\"\nb: [{}]", "x".repeat(1 << 20), "*a, ".repeat(50));
        assert!(message(&text).ends_with(expected));
    }

    #[test]
    fn the_number_of_values_has_a_limit() {
        let limits = Limits { nodes: 10, ..Limits::default() };
        let problem = parse("[1,2,3,4,5,6,7,8,9,10]", &limits).map_err(|p| p.to_string());
        assert_eq!(problem, Err("line 1, column 20: has more than 10 values".to_owned()));
    }

    #[test]
    fn aliases_within_what_is_skipped_stand_for_nothing() {
        for skipped in [
            "{a: &x foo, b: *x}",
            "{a: &x {deep: [1]}, b: [*x, {<<: *x, c: *x}]}",
            "{&k key: 1, *k : 2}",
            "[&x 1, *x]",
        ] {
            let text = format!("data: {skipped}\nkind: Node\n");
            let mut stream = Stream::yaml(&text, 1, &Limits::default());
            stream.enter().expect("a mapping");
            stream.next_key().expect("a key");
            stream.skip().unwrap_or_else(|problem| panic!("{problem}: {skipped}"));
            assert_eq!(stream.next_key().expect("a key").expect("a key").text, "kind");
            assert_eq!(stream.value().expect("a value").as_str(), Some("Node"));
            assert!(stream.next_key().expect("an end").is_none());
        }
    }

    #[test]
    fn a_stream_reads_enters_and_skips() {
        let text = "kind: List\nitems:\n- a: 1\n- b: [2, {c: &x d}]\n- *x\nrest: {e: [f]}\n";
        let run = || -> Result<(), Problem> {
            let mut stream = Stream::yaml(text, 11, &Limits::default());
            stream.enter()?;
            assert_eq!(stream.next_key()?.expect("kind").text, "kind");
            stream.skip()?;
            assert_eq!(stream.next_key()?.expect("items").text, "items");
            stream.enter()?;
            assert!(stream.next_item()?);
            let start = stream.position()?;
            assert_eq!((start.line, start.column), (13, 3));
            let item = stream.value()?;
            assert_eq!(&text[start.offset..stream.end_offset()], "a: 1");
            assert_eq!(item.nearest("a").line, 13);
            assert!(stream.next_item()?);
            assert_eq!(stream.value()?.to_json(), serde_json::json!({"b": [2, {"c": "d"}]}));
            assert!(stream.next_item()?);
            assert_eq!(stream.value()?.as_str(), Some("d"));
            assert!(!stream.next_item()?);
            assert_eq!(stream.next_key()?.expect("rest").text, "rest");
            stream.skip()?;
            assert!(stream.next_key()?.is_none());
            stream.finish()
        };
        assert_eq!(run(), Ok(()));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "([-?:,\\[\\]{}#&*!|>'\"%@` \n\t<a0.~]|---|\\.\\.\\.|<<|&a|\\*a|!!|\r\n|é){0,40}") {
            let _ = read(&text);
            let mut stream = Stream::yaml(&text, 1, &Limits::default());
            let _ = stream.skip();
        }

        #[test]
        fn serde_saphyr_reads_the_same_values(
            text in "(a|b|é|1|-7|0\\.5|0x1f|no|yes|~|'q'|\"w\"|: |- |\\[|\\]|\\{|\\}|, |\n|\n  |\n    |&a |\\*a|#c|\\||>|\n<<: ){0,14}"
        ) {
            use serde_saphyr::{from_str_with_options, options, options::DuplicateKeyPolicy};
            let options = options! {
                duplicate_keys: DuplicateKeyPolicy::Error,
                legacy_octal_numbers: true,
                strict_booleans: true,
                with_snippet: false,
            };
            let theirs = from_str_with_options::<serde_json::Value>(&text, options);
            if let (Ok(ours), Ok(theirs)) = (read(&text), theirs) {
                prop_assert_eq!(ours.to_json(), theirs);
            }
        }
    }
}
