use std::fs;
use std::path::Path;

use rcgen::{CertificateParams, Issuer, KeyPair};
use tempfile::TempDir;

use super::*;

/// A folder with an authority (`ca.pem`), and a certificate of it with its key (`own.pem`, `own.key`).
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    issue(folder.path());
    folder
}

fn issue(folder: &Path) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new([]).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    fs::write(folder.join("ca.pem"), pem).unwrap();
    fs::write(folder.join("own.pem"), own.pem()).unwrap();
    fs::write(folder.join("own.key"), key.serialize_pem()).unwrap();
}

fn files(folder: &TempDir) -> TlsFiles {
    let at = |name: &str| folder.path().join(name);
    TlsFiles {
        identity: Some(Identity {
            certificate: at("own.pem"),
            key: at("own.key"),
        }),
        authority: Some(at("ca.pem")),
        asks_clients: true,
    }
}

fn refused(files: TlsFiles) -> String {
    match Certificates::load(files) {
        Ok(_) => panic!("these files are accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_file_that_is_missing_empty_too_large_or_of_another_kind_is_named_with_its_fault() {
    let folder = folder();
    let shown = |name: &str| folder.path().join(name).display().to_string();
    let own = files(&folder);
    assert!(Certificates::load(own.clone()).unwrap().server().is_some());
    for (file, text, words) in [
        ("own.pem", "", "has no certificate"),
        ("own.key", "no key", "has no private key"),
        (
            "ca.pem",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "cannot be an authority",
        ),
    ] {
        let path = folder.path().join(file);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, text).unwrap();
        let said = refused(own.clone());
        assert!(
            said.contains(words) && said.contains(&shown(file)),
            "{said}"
        );
        fs::write(&path, vec![b'-'; 1024 * 1024 + 1]).unwrap();
        assert!(refused(own.clone()).contains("more than 1048576 bytes"));
        fs::remove_file(&path).unwrap();
        assert!(refused(own.clone()).starts_with(&format!("cannot read {}", shown(file))));
        fs::write(&path, whole).unwrap();
    }
}

#[test]
fn the_key_of_another_certificate_is_refused() {
    let (folder, other) = (folder(), folder_of_others());
    let mut mixed = files(&folder);
    if let Some(own) = &mut mixed.identity {
        own.key = other.path().join("own.key");
    }
    assert!(refused(mixed).contains("does not fit the certificate"));
}

fn folder_of_others() -> TempDir {
    folder()
}

#[test]
fn callers_cannot_be_asked_for_certificates_without_an_authority() {
    let folder = folder();
    let mut own = files(&folder);
    own.authority = None;
    assert!(refused(own).contains("tls.clients needs tls.authority"));
}

#[test]
fn files_that_are_replaced_are_in_force_after_the_next_look_and_broken_ones_never() {
    let folder = folder();
    let certificates = Certificates::load(files(&folder)).unwrap();
    let before = (certificates.server().unwrap(), certificates.client());
    let is_as_before = || {
        Arc::ptr_eq(&certificates.server().unwrap(), &before.0)
            && Arc::ptr_eq(&certificates.client(), &before.1)
    };
    assert_eq!(certificates.reload(), Ok(false));
    fs::write(folder.path().join("own.pem"), "half of a fi").unwrap();
    assert!(matches!(
        certificates.reload(),
        Err(TlsError::NoCertificate(_))
    ));
    assert!(is_as_before());
    issue(folder.path());
    assert_eq!(certificates.reload(), Ok(true));
    assert!(!is_as_before());
}
