//! Signatures of webhooks, as Standard Webhooks defines them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::{KEY_PREFIX, Secret};

/// A key that webhooks are signed with. It does not print and is wiped when dropped.
#[derive(Clone)]
pub struct WebhookKey(Zeroizing<Vec<u8>>);

impl WebhookKey {
    /// The key of a secret: its bytes or, after the prefix `whsec_`, the decoded Base64. `None` if
    /// it is empty, because anybody could make such a signature.
    pub fn of(secret: &Secret) -> Option<Self> {
        let text = secret.expose();
        let decoded = text
            .strip_prefix(KEY_PREFIX)
            .and_then(|encoded| BASE64_STANDARD.decode(encoded).ok());
        let key = Zeroizing::new(decoded.unwrap_or_else(|| text.as_bytes().to_vec()));
        (!key.is_empty()).then_some(Self(key))
    }

    /// The header `webhook-signature`: `v1,` and the HMAC-SHA256 of id, time and body, in Base64.
    /// `at`: the header `webhook-timestamp`, seconds since 1970.
    pub fn sign(&self, id: &str, at: &str, body: &[u8]) -> Option<String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        for part in [id.as_bytes(), b".", at.as_bytes(), b".", body] {
            mac.update(part);
        }
        let signed = BASE64_STANDARD.encode(mac.finalize().into_bytes());
        Some(format!("v1,{signed}"))
    }
}

impl std::fmt::Debug for WebhookKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(super::REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification's libraries.
    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let body = br#"{"test": 2432232314}"#;
        let key = WebhookKey::of(&secret).unwrap();
        let signed = key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body);
        assert_eq!(
            signed.as_deref(),
            Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
        );
        assert_eq!(format!("{key:?}"), "[REDACTED]");
    }

    #[test]
    fn an_empty_key_is_none() {
        for (text, is_key) in [
            ("", false),
            ("whsec_", false),
            ("whsec_AA==", true),
            ("k", true),
        ] {
            let key = WebhookKey::of(&Secret::new(text));
            assert_eq!(key.is_some(), is_key, "{text:?}");
        }
    }
}
