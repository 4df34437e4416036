//! Sessions of browsers, which show no token by themselves: a cookie names one that began with a token.
//!
//! A session lasts as long as this process, its principal's token, and [`LIFETIME`] at most. Cookies count for
//! pages and their forms alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ktsu_environment::Principals;
use ktsu_environment::authentication::ResolvedPrincipal;
use ktsu_ledger::Hash;
use parking_lot::Mutex;

/// The longest time from signing in to the end.
pub const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// The longest time without a request.
pub const IDLE: Duration = Duration::from_secs(2 * 60 * 60);
/// The most sessions at once; another one ends that which was idle for longest.
pub const MAX_SESSIONS: usize = 1_000;
/// The most of one principal.
pub const MAX_SESSIONS_OF_ONE: usize = 20;

/// The bytes of the secret in a cookie.
const SECRET_BYTES: usize = 32;

/// The sessions of an engine. Clones share them.
#[derive(Debug, Clone)]
pub struct BrowserSessions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The name of the cookie: cookies of a host are sent to all its ports, so each process has a name of its own.
    name: String,
    /// True if the cookie is sent only over encrypted connections.
    is_encrypted: bool,
    /// By the hash of the secret, which is nowhere but in the browser.
    open: Mutex<HashMap<Hash, BrowserSession>>,
}

#[derive(Debug)]
struct BrowserSession {
    /// The digest of the token that it began with.
    token: Hash,
    began: Instant,
    used: Instant,
}

impl BrowserSession {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.began) >= LIFETIME || now.duration_since(self.used) >= IDLE
    }
}

impl Default for BrowserSessions {
    fn default() -> Self {
        Self::new(false)
    }
}

impl BrowserSessions {
    /// Those of an engine; `is_encrypted` if it listens with certificates.
    pub fn new(is_encrypted: bool) -> Self {
        let mut chance = [0; 4];
        // Without, the sessions of two engines of one host end each other.
        let _ = getrandom::fill(&mut chance);
        Self(Arc::new(Inner {
            name: format!("ktsu-{:08x}", u32::from_be_bytes(chance)),
            is_encrypted,
            open: Mutex::default(),
        }))
    }

    /// Begins one, of a principal that has shown its token, in place of the one that the browser has; gives the
    /// value of `Set-Cookie`.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn begin(
        &self,
        by: &ResolvedPrincipal,
        headers: &HeaderMap,
        now: Instant,
    ) -> Result<HeaderValue, String> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(|error| error.to_string())?;
        let token = by.token_digest();
        let session = BrowserSession {
            token,
            began: now,
            used: now,
        };
        let before = self.named(headers);
        let mut open = self.0.open.lock();
        open.retain(|name, session| !session.is_over(now) && !before.contains(name));
        // A principal with many sessions ends its own.
        let own = open.values().filter(|session| session.token == token);
        if own.count() >= MAX_SESSIONS_OF_ONE {
            end_idle(&mut open, |session| session.token == token);
        }
        if open.len() >= MAX_SESSIONS {
            end_idle(&mut open, |_| true);
        }
        open.insert(Hash::of(&secret), session);
        Ok(self.cookie(&BASE64_URL_SAFE_NO_PAD.encode(secret), LIFETIME, headers))
    }

    /// The principal whose session a request belongs to, if its token is still in force. A request of two
    /// sessions, one of which another page may have set, belongs to none.
    pub fn principal<'p>(
        &self,
        headers: &HeaderMap,
        principals: &'p Principals,
        now: Instant,
    ) -> Option<&'p ResolvedPrincipal> {
        let names = self.named(headers);
        let mut open = self.0.open.lock();
        let mut found = Vec::new();
        for name in names {
            let session = open.get_mut(&name).filter(|session| !session.is_over(now));
            match session.map(|session| (principals.with_digest(&session.token), session)) {
                Some((Some(known), session)) => {
                    session.used = now;
                    found.push(known);
                }
                Some((None, _)) | None => drop(open.remove(&name)),
            }
        }
        found.pop().filter(|_| found.is_empty())
    }

    /// Ends the sessions of a request; gives the value of `Set-Cookie`.
    pub fn end(&self, headers: &HeaderMap) -> HeaderValue {
        for name in self.named(headers) {
            self.0.open.lock().remove(&name);
        }
        self.cookie("", Duration::ZERO, headers)
    }

    /// The hashes of the secrets that a request shows, a few at the most.
    fn named(&self, headers: &HeaderMap) -> Vec<Hash> {
        let all = headers.get_all(header::COOKIE).iter();
        let pairs = all
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let own = pairs.filter(|(name, _)| *name == self.0.name);
        let secrets = own.filter_map(|(_, secret)| BASE64_URL_SAFE_NO_PAD.decode(secret).ok());
        let secrets = secrets.filter(|secret| secret.len() == SECRET_BYTES);
        secrets.take(4).map(|secret| Hash::of(&secret)).collect()
    }

    /// Without a path: it counts below `…/inspector/`, where it was set, whatever a proxy puts before that.
    fn cookie(&self, secret: &str, lifetime: Duration, headers: &HeaderMap) -> HeaderValue {
        // A proxy in front may encrypt: the form says from where it was sent.
        let origin = headers.get(header::ORIGIN);
        let by_proxy = origin.is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
        let is_secure = self.0.is_encrypted || by_proxy;
        let secure = if is_secure { "; Secure" } else { "" };
        let (name, seconds) = (&self.0.name, lifetime.as_secs());
        let cookie = format!("{name}={secret}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
        // It consists of digits, letters and punctuation.
        HeaderValue::try_from(cookie).unwrap_or(HeaderValue::from_static(""))
    }
}

/// Ends the session that was idle for longest, of some.
fn end_idle(open: &mut HashMap<Hash, BrowserSession>, is_one: impl Fn(&BrowserSession) -> bool) {
    let some = open.iter().filter(|(_, session)| is_one(session));
    let idle = some.min_by_key(|(_, session)| session.used);
    if let Some(idle) = idle.map(|(name, _)| *name) {
        open.remove(&idle);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use ktsu_environment::Environment;

    fn principals(names: &[&str]) -> Principals {
        let listed = names.iter().map(|name| {
            let (variable, token) = (name.to_uppercase(), format!("token-of-{name}"));
            let row =
                format!("  - {{name: {name}, token: {{env: {variable}}}, roles: [viewer]}}\n");
            (row, (variable, token))
        });
        let (rows, tokens): (String, BTreeMap<_, _>) = listed.unzip();
        let text = format!("principals:\n{rows}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("env.yaml");
        std::fs::write(&path, text).unwrap();
        let file = Environment::load(&path).unwrap();
        Principals::resolve(Some(&file), &tokens).unwrap()
    }

    fn of<'p>(known: &'p Principals, name: &str) -> &'p ResolvedPrincipal {
        let token = format!("token-of-{name}");
        known.authenticate(token.as_bytes()).unwrap()
    }

    fn none() -> HeaderMap {
        HeaderMap::new()
    }

    fn showing(cookie: &HeaderValue) -> HeaderMap {
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        let cookies = format!("theme=dark; {pair}; other=1");
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(cookies).unwrap())])
    }

    fn name_of(
        sessions: &BrowserSessions,
        cookie: &HeaderMap,
        known: &Principals,
        at: Instant,
    ) -> String {
        let found = sessions.principal(cookie, known, at);
        found.map_or_else(String::new, |one| one.name.clone())
    }

    #[test]
    fn a_session_is_of_its_principal_until_it_ends_or_is_idle_or_old() {
        let (sessions, known) = (BrowserSessions::new(true), principals(&["ada", "vic"]));
        let begun = Instant::now();
        let ada = of(&known, "ada");
        let cookie = sessions.begin(ada, &none(), begun).unwrap();
        let text = cookie.to_str().unwrap();
        assert!(
            text.ends_with("; Max-Age=43200; HttpOnly; SameSite=Lax; Secure"),
            "{text}"
        );
        let shown = showing(&cookie);
        let who = |at| name_of(&sessions, &shown, &known, at);
        assert_eq!(who(begun), "ada");
        // Used every hour, it still ends.
        let after = |hours: u64| begun + Duration::from_secs(hours * 3_600);
        assert!((1..12).all(|hours| who(after(hours)) == "ada"));
        assert_eq!(who(after(12)), "");
        let idle = showing(&sessions.begin(ada, &none(), begun).unwrap());
        assert_eq!(name_of(&sessions, &idle, &known, after(2)), "");
        let ended = showing(&sessions.begin(ada, &none(), begun).unwrap());
        let emptied = sessions.end(&ended);
        assert!(emptied.to_str().unwrap().contains("=; Max-Age=0"));
        assert_eq!(name_of(&sessions, &ended, &known, begun), "");
    }

    #[test]
    fn a_session_ends_with_the_token_that_it_began_with() {
        let (sessions, known) = (BrowserSessions::default(), principals(&["ada"]));
        let now = Instant::now();
        let ada = of(&known, "ada");
        let shown = showing(&sessions.begin(ada, &none(), now).unwrap());
        assert_eq!(name_of(&sessions, &shown, &principals(&["vic"]), now), "");
        assert_eq!(
            name_of(&sessions, &shown, &known, now),
            "",
            "nor does it come back"
        );
    }

    #[test]
    fn another_cookie_is_of_no_session() {
        let (sessions, known) = (BrowserSessions::new(false), principals(&["ada"]));
        let now = Instant::now();
        let ada = of(&known, "ada");
        let cookie = sessions.begin(ada, &none(), now).unwrap();
        let elsewhere = BrowserSessions::new(false);
        assert_eq!(name_of(&elsewhere, &showing(&cookie), &known, now), "");
        let name = cookie
            .to_str()
            .unwrap()
            .split('=')
            .next()
            .unwrap()
            .to_owned();
        for secret in ["", "AAAA", "%00", &"A".repeat(43), &"A".repeat(10_000)] {
            let made_up = HeaderValue::try_from(format!("{name}={secret}")).unwrap();
            assert_eq!(name_of(&sessions, &showing(&made_up), &known, now), "");
        }
    }

    #[test]
    fn one_session_too_many_ends_that_of_the_same_principal_which_was_idle_for_longest() {
        let (sessions, known) = (BrowserSessions::default(), principals(&["ada", "vic"]));
        let begun = Instant::now();
        let [ada, vic] = ["ada", "vic"].map(|name| of(&known, name));
        let after = |seconds: usize| begun + Duration::from_secs(seconds as u64);
        let of_ada = showing(&sessions.begin(ada, &none(), begun).unwrap());
        let shown: Vec<_> = (0..=MAX_SESSIONS_OF_ONE)
            .map(|at| showing(&sessions.begin(vic, &none(), after(at)).unwrap()))
            .collect();
        let who = |cookie| name_of(&sessions, cookie, &known, after(MAX_SESSIONS_OF_ONE));
        assert_eq!(
            [who(&of_ada), who(&shown[0]), who(&shown[1])],
            ["ada", "", "vic"]
        );
    }

    #[test]
    fn signing_in_again_ends_the_session_before_and_two_sessions_at_once_are_none() {
        let (sessions, known) = (BrowserSessions::default(), principals(&["ada", "vic"]));
        let now = Instant::now();
        let [ada, vic] = ["ada", "vic"].map(|name| of(&known, name));
        let first = showing(&sessions.begin(ada, &none(), now).unwrap());
        let second = showing(&sessions.begin(vic, &first, now).unwrap());
        assert_eq!(name_of(&sessions, &first, &known, now), "");
        assert_eq!(name_of(&sessions, &second, &known, now), "vic");
        let mut both = showing(&sessions.begin(ada, &none(), now).unwrap());
        both.append(header::COOKIE, second[header::COOKIE].clone());
        assert_eq!(name_of(&sessions, &both, &known, now), "");
    }

    #[test]
    fn behind_a_proxy_that_encrypts_the_cookie_is_sent_encrypted_alone() {
        let (sessions, known) = (BrowserSessions::default(), principals(&["ada"]));
        let ada = of(&known, "ada");
        for (origin, is_secure) in [
            ("https://ktsu.example", true),
            ("http://127.0.0.1:1", false),
        ] {
            let from = HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_static(origin))]);
            let cookie = sessions.begin(ada, &from, Instant::now()).unwrap();
            assert_eq!(cookie.to_str().unwrap().ends_with("; Secure"), is_secure);
        }
    }
}
