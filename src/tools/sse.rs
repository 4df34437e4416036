//! Server-sent events, parsed from bytes as they arrive. Pure.

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SseEvent {
    /// Its name; empty for a message.
    pub(super) name: String,
    /// Its lines, joined.
    pub(super) data: String,
}

/// The reason why a stream cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SseError {
    /// An event is larger than allowed.
    TooLarge,
    /// A line is not UTF-8.
    NotUtf8,
}

/// Bytes in, events out. What is kept is at most one line and one event.
#[derive(Debug, Default)]
pub(super) struct SseReader {
    most: usize,
    line: Vec<u8>,
    event: SseEvent,
    /// True if the event has data at all; one without is none.
    has_data: bool,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_return: bool,
    begun: bool,
    last_id: Option<String>,
    retry_ms: Option<u64>,
}

impl SseReader {
    /// A reader that takes events of so many bytes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// The id of the last event that had one.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// The time that the server asks to wait before coming back.
    pub(super) fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Drops what was begun: the stream broke off in the middle of it.
    pub(super) fn discard_partial(&mut self) {
        self.line.clear();
        self.event = SseEvent::default();
        (self.has_data, self.after_return, self.begun) = (false, false, false);
    }

    /// Takes bytes, and gives the events they complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, SseError> {
        let mut events = Vec::new();
        for byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, *byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => events.extend(self.end_line()?),
                byte => {
                    if self.line.len() + self.event.data.len() >= self.most {
                        return Err(SseError::TooLarge);
                    }
                    self.line.push(*byte);
                }
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Result<Option<SseEvent>, SseError> {
        let line = std::mem::take(&mut self.line);
        let line = std::str::from_utf8(&line).map_err(|_| SseError::NotUtf8)?;
        let line = if self.begun {
            line
        } else {
            line.strip_prefix('\u{feff}').unwrap_or(line)
        };
        self.begun = true;
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return Ok(std::mem::take(&mut self.has_data).then_some(event));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        self.field(field, value.strip_prefix(' ').unwrap_or(value));
        Ok(None)
    }

    /// A line of an event; one that begins with a colon is a comment, and has no field.
    fn field(&mut self, field: &str, value: &str) {
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "id" if is_id(value) => self.last_id = Some(value.to_owned()),
            "retry" => self.retry_ms = value.parse().ok().or(self.retry_ms),
            _ => {}
        }
    }
}

/// Returns `true` if an id can go back in a header.
fn is_id(value: &str) -> bool {
    !value.is_empty() && value.len() <= 1024 && value.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, step: usize) -> Vec<SseEvent> {
        let mut reader = SseReader::new(1000);
        let chunks = text.as_bytes().chunks(step);
        chunks
            .flat_map(|chunk| reader.push(chunk).expect("readable"))
            .collect()
    }

    #[test]
    fn events_are_the_same_however_their_bytes_are_cut() {
        let text = "\u{feff}: a comment\r\nevent: endpoint\r\ndata: /a\r\ndata:b\r\rdata: é\n\nevent: empty\n\ndata\n\n";
        let whole = all(text, text.len());
        let event = |name: &str, data: &str| SseEvent {
            name: name.to_owned(),
            data: data.to_owned(),
        };
        assert_eq!(
            whole,
            [event("endpoint", "/a\nb"), event("", "é"), event("", "")]
        );
        for step in 1..text.len() {
            assert_eq!(all(text, step), whole, "cut every {step} bytes");
        }
    }

    #[test]
    fn an_event_without_end_is_refused_before_it_fills_the_memory() {
        let mut reader = SseReader::new(100);
        assert_eq!(reader.push(&[b'x'; 101]), Err(SseError::TooLarge));
        let mut reader = SseReader::new(100);
        let lines = "data: 0123456789\n".repeat(20);
        assert_eq!(reader.push(lines.as_bytes()), Err(SseError::TooLarge));
        let mut reader = SseReader::new(100);
        let comments = ": a comment\n".repeat(1000);
        assert_eq!(reader.push(comments.as_bytes()), Ok(vec![]));
        assert_eq!(reader.push(b"data: \xff\n"), Err(SseError::NotUtf8));
    }

    #[test]
    fn ids_and_delays_are_kept_for_coming_back() {
        let mut reader = SseReader::new(100);
        let text = b"id: 7\nretry: 50\ndata: x\n\nid: \x01\nretry: soon\n\n";
        assert_eq!(reader.push(text).map(|events| events.len()), Ok(1));
        assert_eq!((reader.last_id(), reader.retry_ms()), (Some("7"), Some(50)));
    }
}
