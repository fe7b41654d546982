//! Reads one document: its objects, and the problems in them.

use kube_batch_yaml::{
    Document, Key, Limits, Located, MAX_PROBLEMS, Position, Problem, Problems, Shape, Stream, Value,
};

use crate::{
    context::{Context, Syntax},
    diagnostic::{Diagnostic, Severity},
    object::{Kind, Object, Recognised, TypeMeta},
    place::Place,
};

/// A part of a document: an object or a problem.
pub(crate) enum ItemEvent<'a> {
    Object(Object, Place<'a>),
    Problem(Diagnostic),
    /// A further problem of a document that already has the maximum number of problems.
    UnshownProblem,
    /// A field that does not exist in objects of this kind.
    UnknownField(Kind, Diagnostic),
    Ignored(TypeMeta),
    /// A list without items: not an object, but the file is not empty.
    Nothing,
}

impl ItemEvent<'_> {
    /// The length of its text.
    pub(crate) fn n_bytes(&self) -> usize {
        match self {
            Self::Object(_, place) => place.n_bytes(),
            Self::Problem(_)
            | Self::UnshownProblem
            | Self::UnknownField(..)
            | Self::Ignored(_)
            | Self::Nothing => 0,
        }
    }
}

/// Reads one document.
pub(crate) fn read_document<'a>(
    source: &'a str,
    number: usize,
    document: &Document<'a>,
    emit: &mut dyn FnMut(ItemEvent<'a>),
) {
    let first_line = document.line;
    let context = |text, syntax| Context { source, document: number, text, first_line, syntax };
    let text = match document.text() {
        Ok(text) => text,
        Err(problem) => {
            let diagnostic = Diagnostic::unplaced(Severity::Error, source, problem);
            return emit(ItemEvent::Problem(Diagnostic { document: number, ..diagnostic }));
        }
    };
    let yaml = |emit: &mut dyn FnMut(ItemEvent<'a>)| {
        let stream = Stream::yaml(text, first_line, &Limits::default());
        Parser { context: context(text, Syntax::Yaml), n_problems: 0, emit }.read(stream)
    };
    if !document.is_like_json() {
        if let Err(problem) = yaml(emit) {
            emit(malformed(&context(text, Syntax::Yaml), problem));
        }
        return;
    }
    let mut n_events = 0;
    let mut count = |event| {
        n_events += 1;
        emit(event);
    };
    let stream = Stream::json(text, first_line, &Limits::default());
    let context_of_json = context(text, Syntax::Json);
    let json = Parser { context: context_of_json, n_problems: 0, emit: &mut count }.read(stream);
    let Err(json_problem) = json else { return };
    // `{a: b}` starts like JSON and is YAML.
    if n_events == 0 && is_unlike_json(text) {
        if let Err(problem) = yaml(emit) {
            emit(malformed(&context(text, Syntax::Yaml), problem));
        }
    } else {
        emit(malformed(&context_of_json, json_problem));
    }
}

/// Whether a text that starts with a brace or bracket is not JSON.
fn is_unlike_json(text: &str) -> bool {
    let opened = text.trim_start_matches(['\u{feff}', '-']).trim_start();
    let inside = opened.trim_start_matches(['[', '{', ' ', '\t', '\r', '\n']);
    !inside.starts_with(['"', ']', '}'])
}

fn malformed<'a>(context: &Context<'a>, problem: Problem) -> ItemEvent<'a> {
    let mut diagnostic = context.diagnostic(context.top(), Severity::Error, None, problem);
    let line = diagnostic.excerpt.as_ref().map_or("", |excerpt| &excerpt.text);
    if line.contains("{{") {
        diagnostic.message += "; this looks like a template, render it first";
    }
    ItemEvent::Problem(diagnostic)
}

struct Parser<'a, 'e> {
    context: Context<'a>,
    /// Number of problems so far, without the malformed end of the document.
    n_problems: usize,
    emit: &'e mut dyn FnMut(ItemEvent<'a>),
}

/// `apiVersion` and `kind`, as far as they are known.
#[derive(Clone, Debug, Default)]
struct Header {
    api_version: Option<String>,
    kind: Option<String>,
    /// The recognised kind, once both are known.
    recognised: Option<Recognised>,
}

/// The mapping that a document is, while it is read.
struct Root {
    start: Position,
    header: Header,
    /// The header as it is after the whole mapping was read, if that was necessary: it is, once, if items without a type
    /// precede the kind.
    ahead: Option<Header>,
    /// Whether its items have been passed on.
    has_handed_on: bool,
}

impl Header {
    fn of(node: &Located<'_>) -> Self {
        let mut header = Self::default();
        for key in ["apiVersion", "kind"] {
            if let Some(value) = node.get(key) {
                header.set(key, value);
            }
        }
        header
    }

    fn set(&mut self, key: &str, value: &Located<'_>) {
        let text = value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        if key == "kind" {
            self.kind = text;
        } else {
            self.api_version = text;
        }
        self.recognised = self.type_meta().map(|type_meta| type_meta.recognise());
    }

    fn type_meta(&self) -> Option<TypeMeta> {
        let (api_version, kind) = (self.api_version.clone()?, self.kind.clone()?);
        Some(TypeMeta { api_version, kind })
    }

    fn is_list(&self) -> bool {
        self.kind.as_ref().is_some_and(|kind| kind.ends_with("List"))
    }

    /// The type of items that do not have one: those of a `NodeList` are `Node`.
    fn of_items(&self) -> Option<TypeMeta> {
        let TypeMeta { api_version, kind } = self.type_meta()?;
        let kind = kind.strip_suffix("List").filter(|kind| !kind.is_empty())?.to_owned();
        Some(TypeMeta { api_version, kind })
    }
}

impl<'a> Parser<'a, '_> {
    fn read(&mut self, mut stream: Stream<'a>) -> Result<(), Problem> {
        loop {
            match stream.shape()? {
                Shape::End => return stream.finish(),
                Shape::Mapping => self.root_mapping(&mut stream)?,
                Shape::Sequence => {
                    stream.enter()?;
                    while stream.next_item()? {
                        self.item(&mut stream, None)?;
                    }
                }
                Shape::Scalar => {
                    let start = stream.position()?;
                    let value = stream.value()?;
                    if !value.is_null() {
                        let place = Place::new(self.context, start, stream.end_offset());
                        self.object(&value, &place, None);
                    }
                }
            }
        }
    }

    /// Reads the root mapping: an object, or a list whose items are passed on one by one.
    fn root_mapping(&mut self, stream: &mut Stream<'a>) -> Result<(), Problem> {
        let start = stream.position()?;
        let mut root = Root { start, header: Header::default(), ahead: None, has_handed_on: false };
        let node =
            stream.mapping_with(&mut |stream, key| self.root_value(stream, key, &mut root))?;
        if !(root.header.is_list() && root.has_handed_on) {
            let place = Place::new(self.context, start, stream.end_offset());
            self.object(&node, &place, None);
        }
        Ok(())
    }

    /// Reads the value of a key of the root, unless it belongs to the object.
    fn root_value(
        &mut self,
        stream: &mut Stream<'a>,
        key: &Key<'a>,
        root: &mut Root,
    ) -> Result<Option<Located<'a>>, Problem> {
        let name = &*key.text;
        if name == "apiVersion" || name == "kind" {
            let value = stream.value()?;
            root.header.set(name, &value);
            return Ok(Some(value));
        }
        let may_be_list = root.header.is_list() || root.header.kind.is_none();
        if name == "items" && may_be_list && stream.shape()? == Shape::Sequence {
            root.has_handed_on |= self.items(stream, root)?;
        } else if root.header.recognised == Some(Recognised::Other) {
            stream.skip()?;
        } else {
            return Ok(None);
        }
        Ok(Some(Located { value: Value::Null, line: key.line, column: key.column }))
    }

    /// Passes on the items of a list; `false` if it turns out not to be a list.
    fn items(&mut self, stream: &mut Stream<'a>, root: &mut Root) -> Result<bool, Problem> {
        let mut of_items = root.header.of_items();
        let mut is_first = true;
        stream.enter()?;
        while stream.next_item()? {
            let start = stream.position()?;
            let value = stream.value()?;
            if is_first && root.header.kind.is_none() && Header::of(&value).type_meta().is_none() {
                // Items without a type, before the type of the list is known.
                let ahead = match root.ahead.take() {
                    Some(ahead) => ahead,
                    None => self.look_ahead(root.start).unwrap_or_default(),
                };
                let ahead = root.ahead.insert(ahead);
                if !ahead.is_list() {
                    while stream.next_item()? {
                        stream.skip()?;
                    }
                    return Ok(false);
                }
                of_items = ahead.of_items();
            }
            is_first = false;
            let place = Place::new(self.context, start, stream.end_offset());
            self.object(&value, &place, of_items.as_ref());
        }
        if is_first {
            (self.emit)(ItemEvent::Nothing);
        }
        Ok(true)
    }

    /// `apiVersion` and `kind` of the mapping at `root`, at any position in it.
    fn look_ahead(&self, root: Position) -> Result<Header, Problem> {
        let limits = Limits::default();
        let mut stream = match self.context.syntax {
            Syntax::Yaml => Stream::yaml(self.context.text, self.context.first_line, &limits),
            Syntax::Json => {
                Stream::json(self.context.text.get(root.offset..).unwrap_or_default(), 1, &limits)
            }
        };
        let mut header = Header::default();
        stream.enter()?;
        while let Some(key) = stream.next_key()? {
            match &*key.text {
                name @ ("apiVersion" | "kind") => header.set(name, &stream.value()?),
                _ => stream.skip()?,
            }
        }
        Ok(header)
    }

    fn item(
        &mut self,
        stream: &mut Stream<'a>,
        of_items: Option<&TypeMeta>,
    ) -> Result<(), Problem> {
        let start = stream.position()?;
        let value = stream.value()?;
        let place = Place::new(self.context, start, stream.end_offset());
        self.object(&value, &place, of_items);
        Ok(())
    }

    /// Converts a value to an object, or a nested list to its objects.
    fn object(&mut self, node: &Located<'a>, place: &Place<'a>, implied: Option<&TypeMeta>) {
        let Some(type_meta) = self.type_of(node, place, implied) else { return };
        match type_meta.recognise() {
            Recognised::List => self.nested_list(node, place),
            Recognised::Other => (self.emit)(ItemEvent::Ignored(type_meta)),
            Recognised::Misspelt(message) => {
                let problem = node.get("kind").unwrap_or(node).problem("", message);
                self.problem(Severity::Warning, "", node, place, problem);
                (self.emit)(ItemEvent::Ignored(type_meta));
            }
            Recognised::Kind(kind, served) => {
                let unknown = Problems::default();
                let read = Object::read(kind, served, node, &unknown);
                for problem in unknown.into_sorted() {
                    let name = name_of(kind.name(), node);
                    let diagnostic = place.of_problem(Severity::Warning, name, problem);
                    (self.emit)(ItemEvent::UnknownField(kind, diagnostic));
                }
                match read {
                    Ok(object) => (self.emit)(ItemEvent::Object(object, place.clone())),
                    Err(problem) => {
                        self.problem(Severity::Error, kind.name(), node, place, problem);
                    }
                }
            }
        }
    }

    /// The type of a value, or a problem.
    fn type_of(
        &mut self,
        node: &Located<'a>,
        place: &Place<'a>,
        implied: Option<&TypeMeta>,
    ) -> Option<TypeMeta> {
        let problem = if node.as_mapping().is_none() {
            let found = node.describe();
            node.problem("", format!("expected an object with apiVersion and kind, found {found}"))
        } else {
            let header = Header::of(node);
            match (header.type_meta(), implied) {
                (Some(type_meta), _) => return Some(type_meta),
                (None, Some(implied)) if header.api_version.is_none() && header.kind.is_none() => {
                    return Some(implied.clone());
                }
                (None, _) => missing(node, &header),
            }
        };
        self.problem(Severity::Error, "", node, place, problem);
        None
    }

    /// Passes on a problem with an object.
    fn problem(
        &mut self,
        severity: Severity,
        kind: &str,
        node: &Located<'a>,
        place: &Place<'a>,
        problem: Problem,
    ) {
        self.n_problems += 1;
        (self.emit)(if self.n_problems > MAX_PROBLEMS {
            ItemEvent::UnshownProblem
        } else {
            ItemEvent::Problem(place.of_problem(severity, name_of(kind, node), problem))
        });
    }

    fn nested_list(&mut self, node: &Located<'a>, place: &Place<'a>) {
        let of_items = Header::of(node).of_items();
        let problem = match node.get("items") {
            None => node.problem("items", "is missing"),
            Some(items) if items.is_null() => return (self.emit)(ItemEvent::Nothing),
            Some(items) => match items.as_sequence() {
                Some([]) => return (self.emit)(ItemEvent::Nothing),
                Some(items) => {
                    let mut place = place.clone();
                    for item in items {
                        place = place.inside(item);
                        self.object(item, &place, of_items.as_ref());
                    }
                    return;
                }
                None => {
                    let found = items.describe();
                    items.problem("items", format!("expected a sequence, found {found}"))
                }
            },
        };
        self.problem(Severity::Error, "", node, place, problem);
    }
}

fn missing(node: &Located<'_>, header: &Header) -> Problem {
    let key = if header.api_version.is_none() { "apiVersion" } else { "kind" };
    match node.get(key) {
        Some(value) if !value.is_null() => {
            value.problem(key, format!("expected a name, found {}", value.describe()))
        }
        _ if header.api_version.is_none() && header.kind.is_none() => {
            node.problem("", "apiVersion and kind are missing")
        }
        _ => node.problem(key, "is missing"),
    }
}

/// Kind, namespace and name of an unreadable object, as far as they are known.
fn name_of(kind: &str, node: &Located<'_>) -> Option<String> {
    let kind = match kind {
        "" => node.get("kind").and_then(Located::as_str).filter(|kind| !kind.is_empty()),
        known => Some(known),
    };
    let text = |key| node.get("metadata").and_then(|meta| meta.get(key)).and_then(Located::as_str);
    match (kind, text("namespace"), text("name")) {
        (kind, Some(namespace), Some(name)) => {
            Some(format!("{} {namespace}/{name}", kind.unwrap_or("object")))
        }
        (kind, None, Some(name)) => Some(format!("{} {name}", kind.unwrap_or("object"))),
        (kind, _, None) => kind.map(str::to_owned),
    }
}
