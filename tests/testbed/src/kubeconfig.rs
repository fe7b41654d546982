//! Kubeconfig files: the address of the API server and the identity of the client.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    certificates::Identity,
    error::{Error, Result},
};

/// How a client authenticates.
pub(crate) enum Credentials<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

/// Writes a kubeconfig to `path`. It is JSON, which is also YAML.
pub(crate) fn write(
    path: &Path,
    server: &str,
    authority: &Path,
    credentials: &Credentials<'_>,
) -> Result<()> {
    let user = match credentials {
        Credentials::Certificate(Identity { certificate, key }) => {
            json!({"client-certificate": certificate, "client-key": key})
        }
        Credentials::Token(token) => json!({"token": token}),
    };
    let config: Value = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "testbed",
            "cluster": {"server": server, "certificate-authority": authority},
        }],
        "users": [{"name": "testbed", "user": user}],
        "contexts": [{
            "name": "testbed",
            "context": {"cluster": "testbed", "user": "testbed", "namespace": "default"},
        }],
        "current-context": "testbed",
    });
    fs::write(path, format!("{config:#}\n")).map_err(Error::io(format!("write {}", path.display())))
}
