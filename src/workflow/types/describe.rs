//! Types in words.

use super::{KindSet, ValueType};

const WORDS: [(KindSet, &str); 6] = [
    (KindSet::NULL, "null"),
    (KindSet::BOOL, "a boolean"),
    (KindSet::NUMBER, "a number"),
    (KindSet::STRING, "text"),
    (KindSet::ARRAY, "an array"),
    (KindSet::OBJECT, "an object"),
];

impl KindSet {
    /// As in "a number, text or null".
    pub fn words(self) -> String {
        let found = WORDS.iter().skip(1).chain(WORDS.first());
        let words: Vec<&str> = found
            .filter(|(kind, _)| self.meets(*kind))
            .map(|(_, word)| *word)
            .collect();
        match words.as_slice() {
            [] => "nothing".to_owned(),
            [one] => (*one).to_owned(),
            [first @ .., last] => format!("{} or {last}", first.join(", ")),
        }
    }
}

impl ValueType {
    /// The words for its kinds.
    pub fn words(&self) -> String {
        self.kinds.words()
    }
}
