//! A relay of connections between a scheduler and the API server that can fall silent: it keeps
//! connections open and forwards nothing, as a network does that has lost its state of them.
//!
//! The kernel still acknowledges what a scheduler sends, so only the scheduler can notice.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kube_batch_testbed::cluster::ControlPlane;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::watch,
};

use crate::proxy::listen;

/// A running relay; it ends when this is dropped.
pub(crate) struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

struct Shared {
    api_server: String,
    /// Incremented to silence the connections that exist.
    silences: watch::Sender<u32>,
    /// Whether new connections are silent from their beginning to their end.
    are_new_silent: AtomicBool,
}

impl Relay {
    /// Starts a relay to an API server.
    pub(crate) fn start(plane: &ControlPlane) -> Self {
        let (runtime, listener) = listen();
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            api_server: plane.api_server_address().replace("https://", ""),
            silences: watch::Sender::new(0),
            are_new_silent: AtomicBool::new(false),
        });
        runtime.spawn(Arc::clone(&shared).listen(listener));
        Self { address, shared, _runtime: runtime }
    }

    /// The flag that makes a scheduler use the relay.
    pub(crate) fn flag(&self) -> String {
        format!("--master=https://{}", self.address)
    }

    /// Silences all connections that exist; they stay silent.
    pub(crate) fn silence(&self) {
        self.shared.silences.send_modify(|n| *n += 1);
    }

    /// Silences the connections that begin from now on, which stay silent; or no longer does.
    pub(crate) fn silence_new(&self, are_silent: bool) {
        self.shared.are_new_silent.store(are_silent, Ordering::Relaxed);
    }
}

impl Shared {
    async fn listen(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            tokio::spawn(Arc::clone(&self).forward(stream));
        }
    }

    async fn forward(self: Arc<Self>, mut client: TcpStream) {
        let mut silences = self.silences.subscribe();
        let is_silent = self.are_new_silent.load(Ordering::Relaxed);
        let Ok(mut server) = TcpStream::connect(&self.api_server).await else { return };
        if !is_silent {
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => return,
                _ = silences.changed() => {}
            }
        }
        // Both connections stay open.
        std::future::pending::<()>().await;
    }
}
