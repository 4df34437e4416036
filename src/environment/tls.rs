//! `tls:` of an environment file: what services show of themselves, and whom they trust.

use std::path::Path;

use super::shape;
use ktsu_config::read::ConfigReader;
use ktsu_config::yaml::YamlNode;
use ktsu_tls::{Identity, TlsFiles};

/// `{certificate, key, authority, clients}`; paths are relative to the folder of the file.
pub(super) fn read(reader: &mut ConfigReader<'_>, node: &YamlNode, file: &Path) -> TlsFiles {
    let Some(fields) = reader.shaped(node, &shape::TLS) else {
        return TlsFiles::default();
    };
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut path = |name: &str| {
        let node = fields.get(name)?;
        match reader.string(node, name)? {
            "" => reader.bad_value(node, format!("{name} is empty")),
            path => Some(folder.join(path)),
        }
    };
    let (certificate, key, authority) = (path("certificate"), path("key"), path("authority"));
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            let words = "certificate and key belong together: tls has one of them";
            reader.bad_value(node, words)
        }
    };
    let asks_clients = fields.read("clients", |node| reader.flag(node, "tls.clients"));
    let asks_clients = asks_clients.unwrap_or(false);
    if asks_clients && authority.is_none() {
        let words = "clients needs authority: the one that issues the certificates of callers";
        reader.bad_value::<()>(node, words);
    }
    TlsFiles {
        identity,
        authority,
        asks_clients,
    }
}
