//! What is counted between two readings, as flat rows: [endpoint, cluster] or [route, from, to].

#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// [endpoint, cluster]
    pub arrived: Vec<u64>,
    /// Served requests whose worker was released [endpoint, cluster].
    pub served: Vec<u64>,
    /// Refused, timed out in the queue, or answered with an error [endpoint, cluster].
    pub failed: Vec<u64>,
    /// Seconds that served requests waited for and held a worker, summed [endpoint, cluster].
    pub own_s: Vec<f64>,
    /// Of these, seconds of waiting [endpoint, cluster].
    pub waited_s: Vec<f64>,
    /// Served requests whose key was cached [endpoint, cluster].
    pub hits: Vec<u64>,
    /// Calls [route, from, to].
    pub calls: Vec<u64>,
    /// Bytes of requests and answers that left a cluster for another [from, to].
    pub bytes: Vec<u64>,
}

impl Counts {
    pub fn new(endpoints: usize, routes: usize, clusters: usize) -> Self {
        let places = endpoints * clusters;
        Self {
            arrived: vec![0; places],
            served: vec![0; places],
            failed: vec![0; places],
            own_s: vec![0.0; places],
            waited_s: vec![0.0; places],
            hits: vec![0; places],
            calls: vec![0; routes * clusters * clusters],
            bytes: vec![0; clusters * clusters],
        }
    }
}

/// Requests of users that have ended, in columns of equal length.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    pub at_s: Vec<f64>,
    pub latency_s: Vec<f64>,
    pub ok: Vec<bool>,
    pub cluster: Vec<u8>,
    pub kind: Vec<u8>,
}

impl Ended {
    pub fn push(&mut self, at_s: f64, latency_s: f64, ok: bool, cluster: usize, kind: usize) {
        self.at_s.push(at_s);
        self.latency_s.push(latency_s);
        self.ok.push(ok);
        self.cluster.push(cluster as u8);
        self.kind.push(kind as u8);
    }

    pub fn len(&self) -> usize {
        self.at_s.len()
    }

    pub fn is_empty(&self) -> bool {
        self.at_s.is_empty()
    }
}
