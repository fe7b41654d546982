//! Reads a document piece by piece, so that a list of a hundred thousand objects is never in memory
//! as a whole.

use std::collections::HashSet;

use crate::{
    json::Json,
    problem::{Problem, shorten},
    syntax::Yaml,
    token::{Limits, NextKey, Opened, Position, Shape, What, too_deep},
    value::{Entry, Key, Located, Value},
};

/// Reads the only document of a YAML text.
///
/// # Errors
///
/// [`Problem`] if the text is not YAML, has no or several documents, or exceeds `limits`.
pub fn parse<'a>(text: &'a str, limits: &Limits) -> Result<Located<'a>, Problem> {
    let mut stream = Stream::yaml(text, 1, limits);
    let value = stream.value()?;
    stream.finish()?;
    Ok(value)
}

/// One document, read from front to back.
///
/// A value is read as a whole ([`value`](Self::value)), skipped, or entered. A value that was entered
/// is read with [`next_key`](Self::next_key) or [`next_item`](Self::next_item), each followed by
/// exactly one value, until they report the end. After an error the stream must not be used.
pub struct Stream<'a> {
    syntax: Syntax<'a>,
    limits: Limits,
    /// Number of values that the current call may still return.
    nodes_left: usize,
    /// Mappings and sequences that have been entered.
    n_entered: usize,
}

/// Reads the value of a key itself, or leaves it to the caller (`None`).
pub type Take<'f, 'a> =
    dyn FnMut(&mut Stream<'a>, &Key<'a>) -> Result<Option<Located<'a>>, Problem> + 'f;

enum Syntax<'a> {
    Yaml(Box<Yaml<'a>>),
    Json(Json<'a>),
}

impl<'a> Stream<'a> {
    /// Reads one YAML document that starts in `first_line` of its file.
    pub fn yaml(text: &'a str, first_line: u32, limits: &Limits) -> Self {
        let syntax = Syntax::Yaml(Box::new(Yaml::new(text, first_line, limits)));
        Self { syntax, limits: *limits, nodes_left: limits.nodes, n_entered: 0 }
    }

    /// Reads a sequence of JSON values that start in `first_line` of their file. The marker `---` may
    /// precede them.
    pub fn json(text: &'a str, first_line: u32, limits: &Limits) -> Self {
        let syntax = Syntax::Json(Json::new(text, first_line));
        Self { syntax, limits: *limits, nodes_left: limits.nodes, n_entered: 0 }
    }

    /// What comes next.
    ///
    /// # Errors
    ///
    /// [`Problem`] if the text ends early or is malformed here.
    pub fn shape(&mut self) -> Result<Shape, Problem> {
        match &mut self.syntax {
            Syntax::Yaml(yaml) => yaml.shape(),
            Syntax::Json(json) => json.shape(),
        }
    }

    /// Where the next value starts.
    ///
    /// # Errors
    ///
    /// [`Problem`] if the text ends early or is malformed here.
    pub fn position(&mut self) -> Result<Position, Problem> {
        match &mut self.syntax {
            Syntax::Yaml(yaml) => yaml.position(),
            Syntax::Json(json) => Ok(json.position()),
        }
    }

    /// The byte after the last value that was read.
    pub fn end_offset(&self) -> usize {
        match &self.syntax {
            Syntax::Yaml(yaml) => yaml.end_offset(),
            Syntax::Json(json) => json.end_offset(),
        }
    }

    /// Enters the next value, a sequence or mapping.
    ///
    /// # Errors
    ///
    /// [`Problem`] if there is none, or if it is nested too deep.
    pub fn enter(&mut self) -> Result<(), Problem> {
        let opened = self.open()?;
        self.n_entered += 1;
        self.check_depth(self.n_entered, &opened)?;
        match opened.what {
            What::Sequence | What::Mapping => Ok(()),
            What::Scalar(_) | What::Alias(..) => {
                Err(opened.problem("expected a mapping or a sequence"))
            }
        }
    }

    /// The next key of the mapping that was entered; `None` leaves it. The merge key is returned like
    /// any other key.
    ///
    /// # Errors
    ///
    /// [`Problem`] if the text ends early or is malformed here.
    pub fn next_key(&mut self) -> Result<Option<Key<'a>>, Problem> {
        let key = self.pull_key()?.map(|key| match key {
            NextKey::Key(key) | NextKey::Merge(key) => key,
        });
        self.n_entered -= usize::from(key.is_none());
        Ok(key)
    }

    /// Whether the sequence that was entered has another item; `false` leaves it.
    ///
    /// # Errors
    ///
    /// [`Problem`] if the text ends early or is malformed here.
    pub fn next_item(&mut self) -> Result<bool, Problem> {
        let has_item = self.pull_item()?;
        self.n_entered -= usize::from(!has_item);
        Ok(has_item)
    }

    /// The next value as a whole.
    ///
    /// # Errors
    ///
    /// [`Problem`] if it is malformed, has a duplicate key, or exceeds a limit.
    pub fn value(&mut self) -> Result<Located<'a>, Problem> {
        self.nodes_left = self.limits.nodes;
        self.compose(self.n_entered)
    }

    /// The next mapping as a whole, except for values that `take` reads from this stream itself: its
    /// result replaces them.
    ///
    /// # Errors
    ///
    /// [`Problem`] as of [`value`](Self::value), or what `take` returns.
    pub fn mapping_with(&mut self, take: &mut Take<'_, 'a>) -> Result<Located<'a>, Problem> {
        let Position { line, column, .. } = self.position()?;
        self.nodes_left = self.limits.nodes;
        self.enter()?;
        let entries = self.compose_entries(self.n_entered, Some(take))?;
        self.n_entered -= 1;
        Ok(Located { value: Value::Mapping(entries), line, column })
    }

    /// Skips the next value.
    ///
    /// # Errors
    ///
    /// [`Problem`] if it is malformed or nested too deep.
    pub fn skip(&mut self) -> Result<(), Problem> {
        self.set_skips(true);
        self.skip_value()?;
        self.set_skips(false);
        Ok(())
    }

    const fn set_skips(&mut self, skips: bool) {
        if let Syntax::Yaml(yaml) = &mut self.syntax {
            yaml.set_skips(skips);
        }
    }

    fn skip_value(&mut self) -> Result<(), Problem> {
        let mut open = vec![];
        loop {
            let opened = self.open()?;
            match opened.what {
                What::Scalar(_) | What::Alias(..) => {}
                What::Sequence | What::Mapping => {
                    self.check_depth(self.n_entered + open.len() + 1, &opened)?;
                    open.push(matches!(opened.what, What::Mapping));
                }
            }
            loop {
                let has_more = match open.last() {
                    None => return Ok(()),
                    Some(true) => self.pull_key()?.is_some(),
                    Some(false) => self.pull_item()?,
                };
                if has_more {
                    break;
                }
                open.pop();
            }
        }
    }

    /// Checks that nothing follows.
    ///
    /// # Errors
    ///
    /// [`Problem`] if something does.
    pub fn finish(&mut self) -> Result<(), Problem> {
        match &mut self.syntax {
            Syntax::Yaml(yaml) => yaml.finish(),
            Syntax::Json(json) => json.finish(),
        }
    }

    fn open(&mut self) -> Result<Opened<'a>, Problem> {
        match &mut self.syntax {
            Syntax::Yaml(yaml) => yaml.open(),
            Syntax::Json(json) => json.open(),
        }
    }

    fn pull_key(&mut self) -> Result<Option<NextKey<'a>>, Problem> {
        match &mut self.syntax {
            Syntax::Yaml(yaml) => yaml.next_key(),
            Syntax::Json(json) => Ok(json.next_key()?.map(NextKey::Key)),
        }
    }

    fn pull_item(&mut self) -> Result<bool, Problem> {
        match &mut self.syntax {
            Syntax::Yaml(yaml) => yaml.next_item(),
            Syntax::Json(json) => json.next_item(),
        }
    }

    fn check_depth(&self, depth: usize, opened: &Opened<'a>) -> Result<(), Problem> {
        if depth > self.limits.depth {
            return Err(opened.problem(too_deep(self.limits.depth)));
        }
        Ok(())
    }

    fn compose(&mut self, depth: usize) -> Result<Located<'a>, Problem> {
        let opened = self.open()?;
        let Some(nodes_left) = self.nodes_left.checked_sub(1) else {
            let message = format!("has more than {} values", self.limits.nodes);
            return Err(opened.problem(message));
        };
        self.nodes_left = nodes_left;
        let Opened { line, column, anchor, .. } = opened;
        let value = match opened.what {
            What::Scalar(value) => value,
            What::Alias(ref copy, height) => {
                self.check_depth(depth + height, &opened)?;
                return Ok(copy.clone());
            }
            What::Sequence => {
                self.check_depth(depth + 1, &opened)?;
                let mut items = vec![];
                while self.pull_item()? {
                    items.push(self.compose(depth + 1)?);
                }
                Value::Sequence(items)
            }
            What::Mapping => {
                self.check_depth(depth + 1, &opened)?;
                Value::Mapping(self.compose_entries(depth + 1, None)?)
            }
        };
        let located = Located { value, line, column };
        if let (Some(anchor), Syntax::Yaml(yaml)) = (anchor, &mut self.syntax) {
            yaml.keep(anchor, &located)?;
        }
        Ok(located)
    }

    fn compose_entries(
        &mut self,
        depth: usize,
        mut take: Option<&mut Take<'_, 'a>>,
    ) -> Result<Vec<Entry<'a>>, Problem> {
        let mut entries: Vec<Entry<'a>> = vec![];
        let mut merged = vec![];
        while let Some(key) = self.pull_key()? {
            match key {
                NextKey::Key(key) => {
                    let taken = match &mut take {
                        Some(take) => take(self, &key)?,
                        None => None,
                    };
                    let value = match taken {
                        Some(value) => value,
                        None => self.compose(depth)?,
                    };
                    entries.push(Entry { key, value });
                }
                NextKey::Merge(_) => merged.push(self.compose(depth)?),
            }
        }
        reject_duplicates(&entries)?;
        if !merged.is_empty() {
            merge(&mut entries, merged)?;
        }
        Ok(entries)
    }
}

impl Opened<'_> {
    pub(crate) fn problem(&self, message: impl Into<String>) -> Problem {
        let (line, column) = (self.line, self.column);
        Problem { line, column, path: String::new(), message: message.into() }
    }
}

/// Mappings up to this length are searched key by key. Guessed; few mappings are longer.
const SHORT_MAPPING: usize = 16;

fn reject_duplicates(entries: &[Entry<'_>]) -> Result<(), Problem> {
    let duplicate = if entries.len() <= SHORT_MAPPING {
        entries.iter().enumerate().find_map(|(at, entry)| {
            let earlier = entries[..at].iter().find(|other| other.key.text == entry.key.text);
            earlier.map(|_| &entry.key)
        })
    } else {
        let mut seen = HashSet::with_capacity(entries.len());
        entries.iter().map(|entry| &entry.key).find(|key| !seen.insert(&*key.text))
    };
    duplicate.map_or(Ok(()), |key| Err(key.duplicate()))
}

impl Key<'_> {
    /// The problem of a duplicate key.
    pub fn duplicate(&self) -> Problem {
        Problem {
            line: self.line,
            column: self.column,
            path: String::new(),
            message: format!("duplicate key {:?}", shorten(&self.text)),
        }
    }
}

/// Adds the entries of `<<` that the mapping does not have itself; the first source of a key wins.
fn merge<'a>(entries: &mut Vec<Entry<'a>>, merged: Vec<Located<'a>>) -> Result<(), Problem> {
    let mut known: HashSet<String> = entries.iter().map(|e| e.key.text.to_string()).collect();
    let mut add = |source: Located<'a>| match source.value {
        Value::Mapping(more) => {
            entries.extend(more.into_iter().filter(|e| known.insert(e.key.text.to_string())));
            Ok(())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Sequence(_) => {
            Err(source.problem("", "the merge key << takes a mapping or a sequence of mappings"))
        }
    };
    for source in merged {
        match source.value {
            Value::Sequence(items) => items.into_iter().try_for_each(&mut add)?,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Mapping(_) => add(source)?,
        }
    }
    Ok(())
}
