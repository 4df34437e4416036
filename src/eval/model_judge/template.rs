//! Templates of prompts: text with places for the criteria, the rubric and what is judged.

/// The most bytes of a prompt without what is judged.
const MAX_PROMPT: usize = 256 << 10;

/// The names of placeholders.
const NAMES: [(&str, Piece); 5] = [
    ("criteria", Piece::Criteria),
    ("rubric", Piece::Rubric),
    ("rubric.pass", Piece::Pass),
    ("rubric.fail", Piece::Fail),
    ("input", Piece::Input),
];

/// Descriptions of what passes and what fails, in words for the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rubric {
    /// A description of what passes.
    pub pass: Option<String>,
    /// A description of what fails.
    pub fail: Option<String>,
}

/// A template: what is put into it is never read as a template again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptTemplate(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Criteria,
    Rubric,
    Pass,
    Fail,
    Input,
}

impl PromptTemplate {
    /// The usual one.
    pub(crate) fn usual() -> Self {
        let text = |text: &str| Piece::Text(text.to_owned());
        Self(vec![
            text("Criteria:\n"),
            Piece::Criteria,
            text("\n\n"),
            Piece::Rubric,
            text("What is to be judged:\n\n"),
            Piece::Input,
            text("\n"),
        ])
    }

    /// Reads a template of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let words = "prompt_template has a {{ without its }}";
            let (name, behind) = after.split_once("}}").ok_or(words)?;
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(named(name.trim())?);
            rest = behind;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        let inputs = pieces.iter().filter(|piece| **piece == Piece::Input);
        match inputs.count() {
            1 => Ok(Self(pieces)),
            0 => Err("prompt_template has no {{ input }}".to_owned()),
            _ => Err("prompt_template has more than one {{ input }}".to_owned()),
        }
    }

    /// Returns `true` if a prompt is larger than it may be, without what is judged.
    pub(crate) fn is_too_large(&self, criteria: &str, rubric: &Rubric) -> bool {
        let values = Values::new(criteria, rubric, "");
        let lengths = self.0.iter().map(|piece| values.of(piece).len());
        lengths.fold(0_usize, usize::saturating_add) > MAX_PROMPT
    }

    /// The prompt.
    pub(crate) fn render(&self, criteria: &str, rubric: &Rubric, input: &str) -> String {
        let values = Values::new(criteria, rubric, input);
        self.0.iter().map(|piece| values.of(piece)).collect()
    }
}

fn named(name: &str) -> Result<Piece, String> {
    let found = NAMES.iter().find(|(known, _)| *known == name);
    found.map(|(_, piece)| piece.clone()).ok_or_else(|| {
        let known = NAMES.map(|(known, _)| known).join(", ");
        format!("prompt_template has an unknown placeholder {{{{ {name} }}}}; known are {known}")
    })
}

/// The values of placeholders.
struct Values<'v> {
    criteria: &'v str,
    pass: &'v str,
    fail: &'v str,
    rubric: String,
    input: &'v str,
}

impl<'v> Values<'v> {
    fn new(criteria: &'v str, rubric: &'v Rubric, input: &'v str) -> Self {
        let line = |word: &str, text: &Option<String>| match text {
            Some(text) => format!("{word}: {text}\n"),
            None => String::new(),
        };
        let lines = line("It passes if", &rubric.pass) + &line("It fails if", &rubric.fail);
        Self {
            criteria,
            pass: rubric.pass.as_deref().unwrap_or_default(),
            fail: rubric.fail.as_deref().unwrap_or_default(),
            rubric: match lines.is_empty() {
                true => lines,
                false => lines + "\n",
            },
            input,
        }
    }

    fn of<'s>(&'s self, piece: &'s Piece) -> &'s str {
        match piece {
            Piece::Text(text) => text,
            Piece::Criteria => self.criteria,
            Piece::Rubric => &self.rubric,
            Piece::Pass => self.pass,
            Piece::Fail => self.fail,
            Piece::Input => self.input,
        }
    }
}
