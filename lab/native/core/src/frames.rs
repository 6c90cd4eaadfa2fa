//! Frames: calls in progress, in places that are used again.

pub const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Free,
    /// On its way to the callee.
    Sent,
    Waiting,
    Serving,
    /// Its calls are in progress.
    Calling,
    /// On its way back.
    Answered,
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub generation: u32,
    pub phase: Phase,
    /// NONE for a request of a user.
    pub parent: u32,
    /// The caller no longer waits.
    pub abandoned: bool,
    pub optional: bool,
    pub failed: bool,
    pub endpoint: u32,
    /// Of a call; users' requests have none.
    pub route: u32,
    pub cluster: u16,
    /// Cluster of the caller.
    pub from: u16,
    /// NONE if the callee has no pods.
    pub pod: u32,
    pub kind: u16,
    /// Cluster of the user.
    pub home: u16,
    /// What the user asks for. The values of path variables follow from it.
    pub asks: u64,
    /// Its key was in the callee's cache.
    pub hit: bool,
    pub stage: u16,
    /// Calls of this stage that are not back.
    pub left: u32,
    pub sent: f64,
    pub arrived: f64,
    pub started: f64,
}

impl Frame {
    /// A request of a user or a call that is sent now.
    pub fn sent(now: f64) -> Self {
        Self {
            generation: 0,
            phase: Phase::Sent,
            parent: NONE,
            abandoned: false,
            optional: false,
            failed: false,
            endpoint: 0,
            route: NONE,
            cluster: 0,
            from: 0,
            pod: NONE,
            kind: 0,
            home: 0,
            asks: 0,
            hit: false,
            stage: 0,
            left: 0,
            sent: now,
            arrived: now,
            started: now,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Frames {
    frames: Vec<Frame>,
    free: Vec<u32>,
}

impl Frames {
    pub fn add(&mut self, mut frame: Frame) -> u32 {
        if let Some(index) = self.free.pop() {
            frame.generation = self.frames[index as usize].generation;
            self.frames[index as usize] = frame;
            return index;
        }
        self.frames.push(frame);
        (self.frames.len() - 1) as u32
    }

    pub fn remove(&mut self, index: u32) {
        let frame = &mut self.frames[index as usize];
        frame.generation = frame.generation.wrapping_add(1);
        frame.phase = Phase::Free;
        self.free.push(index);
    }

    pub fn in_progress(&self) -> usize {
        self.frames.len() - self.free.len()
    }
}

/// Whether a frame of that generation waits for a worker.
pub fn waits(frames: &Frames) -> impl Fn(u32, u32) -> bool {
    |index, generation| frames[index].generation == generation && frames[index].phase == Phase::Waiting
}

/// Whether this is still the frame of that generation, and its caller still waits.
pub fn is_awaited(frames: &Frames) -> impl Fn(u32, u32) -> bool {
    |index, generation| {
        let frame = &frames[index];
        frame.generation == generation && frame.phase != Phase::Free && !frame.abandoned
    }
}

impl std::ops::Index<u32> for Frames {
    type Output = Frame;
    fn index(&self, index: u32) -> &Frame {
        &self.frames[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Frames {
    fn index_mut(&mut self, index: u32) -> &mut Frame {
        &mut self.frames[index as usize]
    }
}
