//! Certificates of the servers and clients of a control plane, and the authority that signs them.
//!
//! All keys are on the P-256 curve. They are used only while the control plane runs, so none is renewed.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::error::{Error, Result};

/// A certificate and its key, as PEM files.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// A pair of keys, as PEM files.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) public: PathBuf,
    pub(crate) private: PathBuf,
}

/// The authority that every server and every client of one control plane trusts.
pub(crate) struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority that writes its files to `directory`.
    pub(crate) fn new(directory: &Path) -> Result<Self> {
        let subject = "the authority";
        let mut params = params(subject, &[])?;
        params.distinguished_name.push(DnType::CommonName, "kube-batch-testbed");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(problem(subject))?;
        let certificate = params.self_signed(&key).map_err(problem(subject))?;
        let authority = Self { directory: directory.to_owned(), issuer: Issuer::new(params, key) };
        write(&authority.certificate(), &certificate.pem())?;
        Ok(authority)
    }

    /// The file of the authority's own certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// Signs the certificate of a server that is reached under `names`: host names and addresses; with `expires`, it
    /// is valid until then.
    pub(crate) fn server(
        &self,
        name: &str,
        names: &[&str],
        expires: Option<SystemTime>,
    ) -> Result<Identity> {
        let mut params = params(name, names)?;
        if let Some(expires) = expires {
            params.not_after = expires.into();
        }
        self.sign(name, name, params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Signs the certificate of a client that the API server authenticates as `user` in `groups`, in
    /// files called `file`; with `expires`, it is valid until then.
    pub(crate) fn client(
        &self,
        file: &str,
        user: &str,
        groups: &[&str],
        expires: Option<SystemTime>,
    ) -> Result<Identity> {
        let mut params = params(user, &[])?;
        if let Some(expires) = expires {
            params.not_after = expires.into();
        }
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        self.sign(file, user, params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Creates the keys with which the API server signs and verifies tokens of service accounts.
    pub(crate) fn service_account_keys(&self) -> Result<Keys> {
        let key = KeyPair::generate().map_err(problem("service accounts"))?;
        let keys = Keys {
            public: self.directory.join("service-accounts.pub"),
            private: self.directory.join("service-accounts.key"),
        };
        write(&keys.public, &key.public_key_pem())?;
        write(&keys.private, &key.serialize_pem())?;
        Ok(keys)
    }

    fn sign(
        &self,
        file: &str,
        subject: &str,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Identity> {
        params.distinguished_name.push(DnType::CommonName, subject);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().map_err(problem(subject))?;
        let signed = params.signed_by(&key, &self.issuer).map_err(problem(subject))?;
        let identity = Identity {
            certificate: self.directory.join(format!("{file}.crt")),
            key: self.directory.join(format!("{file}.key")),
        };
        write(&identity.certificate, &signed.pem())?;
        write(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }
}

/// The parameters of a certificate with these names; its subject and usages are set later.
fn params(subject: &str, names: &[&str]) -> Result<CertificateParams> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).map_err(problem(subject))?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    Ok(params)
}

fn problem(subject: &str) -> impl FnOnce(rcgen::Error) -> Error {
    let subject = subject.to_owned();
    |source| Error::Certificate { subject, source }
}

fn write(path: &Path, pem: &str) -> Result<()> {
    fs::write(path, pem).map_err(Error::io(format!("write {}", path.display())))
}
