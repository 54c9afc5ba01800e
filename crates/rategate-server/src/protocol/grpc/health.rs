//! The health service, `grpc.health.v1`.

use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{self, HealthServer};
use tonic_health::server::{HealthReporter, HealthService};

use crate::messages::rls::rate_limit_service_server::SERVICE_NAME;

/// The services with a health: the server as a whole, Envoy's, and the health service itself.
const SERVICES: [&str; 3] = ["", SERVICE_NAME, health_server::SERVICE_NAME];

/// The health of the service. Clones share it.
#[derive(Clone, Debug)]
pub struct Health(HealthReporter);

impl Health {
    /// Creates the health of a service that serves, or does not serve yet.
    pub async fn new(serving: bool) -> Self {
        let health = Self(HealthReporter::new());
        health.set(serving).await;
        health
    }

    /// Sets the health, and notifies the watchers.
    pub async fn set(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in SERVICES {
            self.0.set_service_status(service, status).await;
        }
    }

    /// Ends the service for good. Watchers are notified, and then their calls end.
    pub async fn end(&self) {
        self.set(false).await;
        for service in SERVICES {
            self.0.clone().clear_service_status(service).await;
        }
    }

    pub(super) fn server(&self, max_message_bytes: usize) -> HealthServer<HealthService> {
        let service = HealthService::from_health_reporter(self.0.clone());
        HealthServer::new(service).max_decoding_message_size(max_message_bytes)
    }
}

/// Returns `true` for the paths of the service's methods.
pub(super) fn is_method(path: &str) -> bool {
    let path =
        path.strip_prefix('/').and_then(|path| path.strip_prefix(health_server::SERVICE_NAME));
    path.is_some_and(|method| method.starts_with('/'))
}
