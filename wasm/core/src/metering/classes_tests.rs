use super::*;
use proptest::prelude::*;

/// The table that the proxy keeps for all workers. Each of the `rivals` is appended once, before
/// the caller's own replacement.
#[derive(Default)]
struct Shared {
    table: Vec<u8>,
    version: u32,
    reads: usize,
    rivals: Vec<String>,
}

impl Table for Shared {
    fn read(&mut self) -> Option<(&[u8], u32)> {
        self.reads += 1;
        Some((&self.table, self.version))
    }

    fn replace(&mut self, table: &[u8], version: u32) -> bool {
        if let Some(rival) = self.rivals.pop() {
            self.table = appended(&self.table, &rival).unwrap();
            self.version += 1;
        }
        let first = version == self.version;
        if first {
            (self.table, self.version) = (table.to_vec(), version + 1);
        }
        first
    }
}

struct Absent;

impl Table for Absent {
    fn read(&mut self) -> Option<(&[u8], u32)> {
        None
    }

    fn replace(&mut self, _: &[u8], _: u32) -> bool {
        false
    }
}

fn class(nth: usize) -> String {
    format!("class {nth}")
}

/// A worker that met no class itself learns the classes that other workers met. Once the table is
/// full, it also learns of the shared value.
#[test]
fn classes_of_other_workers_are_met() {
    let (mut first, mut other) = (Classes::default(), Classes::default());
    let mut shared = Shared::default();
    let make = |name: Option<&str>| Some(name.map(str::to_string));
    first.slot("a", &mut shared, make);
    first.slot("b", &mut shared, make);
    other.slot("b", &mut shared, make);
    other.meet_all(&mut shared, make);
    let mut met: Vec<_> =
        other.iter().map(|(name, value)| (name.map(str::to_string), value.clone())).collect();
    met.sort();
    assert_eq!(met, ["a", "b"].map(|name| (Some(name.to_string()), Some(name.to_string()))));
    for nth in 0..MAX_CLASSES {
        first.slot(&class(nth), &mut shared, make);
    }
    other.meet_all(&mut shared, make);
    assert_eq!(other.iter().count(), MAX_CLASSES + 1);
    assert_eq!(other.iter().last(), Some((None, &None)));
    other.meet_all(&mut Absent, make);
    assert_eq!(other.iter().count(), MAX_CLASSES + 1);
}

/// Returns the name with which the slot's value was created. None for the shared value.
fn created(classes: &mut Classes<Option<String>>, shared: &mut Shared, name: &str) -> Option<String> {
    let slot = classes.slot(name, shared, |name| Some(name.map(str::to_string)));
    classes.get(slot.unwrap()).unwrap().clone()
}

/// A class keeps its slot. All classes beyond the limit share one. The table is read once per class
/// while it grows, and never again after it was seen full.
#[test]
fn bounded() {
    let (mut classes, mut shared) = (Classes::default(), Shared::default());
    for round in 0..2 {
        for nth in 0..MAX_CLASSES + 10 {
            let expected = (nth < MAX_CLASSES).then(|| class(nth));
            assert_eq!(created(&mut classes, &mut shared, &class(nth)), expected, "{nth} in round {round}");
        }
    }
    assert_eq!(classes.iter_mut().count(), MAX_CLASSES + 1);
    assert_eq!(shared.reads, MAX_CLASSES + 1);
    assert_eq!(names(&shared.table).count(), MAX_CLASSES);
}

/// When a value cannot be created or agreed on, the next request tries again.
#[test]
fn failures_are_tried_again() {
    let (mut classes, mut shared) = (Classes::<u8>::default(), Shared::default());
    assert_eq!(classes.slot("a", &mut Absent, |_| Some(1)), None);
    assert_eq!(classes.slot("a", &mut shared, |_| None), None);
    assert_eq!(classes.slot("a", &mut shared, |_| Some(1)), Some(Slot::Own(0)));
}

/// When another worker appends first, its class stays in the table and ours follows it. If it took
/// the last place, ours gets the shared slot.
#[test]
fn races_lose_nothing() {
    let mut shared = Shared { rivals: vec!["c".to_string(), "b".to_string()], ..Shared::default() };
    let mut classes = Classes::default();
    assert_eq!(created(&mut classes, &mut shared, "a").as_deref(), Some("a"));
    assert_eq!(names(&shared.table).collect::<Vec<_>>(), ["b", "c", "a"]);
    for nth in 0..MAX_CLASSES - 4 {
        created(&mut classes, &mut shared, &class(nth));
    }
    shared.rivals.push("last".to_string());
    assert_eq!(created(&mut classes, &mut shared, "late"), None);
    assert_eq!(created(&mut classes, &mut shared, "last").as_deref(), Some("last"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the order in which workers meet classes, each class has its own slot on all of them
    /// or on none.
    #[test]
    fn workers_agree(met in proptest::collection::vec((0usize..3, 0usize..400), 0..1_500)) {
        let (mut workers, mut shared) = ([(); 3].map(|()| Classes::default()), Shared::default());
        let mut seen: HashMap<usize, bool> = HashMap::new();
        for (worker, nth) in met {
            let named = created(&mut workers[worker], &mut shared, &class(nth)).is_some();
            prop_assert_eq!(*seen.entry(nth).or_insert(named), named);
        }
        prop_assert!(seen.values().filter(|named| **named).count() <= MAX_CLASSES);
    }

    /// Names are read back in order. Any bytes are read without harm, and an appended name is
    /// found.
    #[test]
    fn tables_round_trip(list in proptest::collection::vec("\\PC{0,40}", 0..20), bytes: Vec<u8>) {
        let table = list.iter().fold(Vec::new(), |table, name| appended(&table, name).unwrap());
        prop_assert_eq!(names(&table).collect::<Vec<_>>(), list);
        prop_assert!(names(&appended(&bytes, "new").unwrap()).any(|name| name == "new"));
    }
}
