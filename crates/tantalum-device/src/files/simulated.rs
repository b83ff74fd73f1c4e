//! A file system in memory that loses power.
//!
//! A power cut leaves of what was not synchronized anything that POSIX allows: of each directory, any subset of the names that came,
//! went or changed since it was synchronized; of a file that was being made, nothing, a part, or garbage. Files that were made whole
//! are [`MemoryDevice`]s, with what those lose.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tantalum_rt::{Mutex, MutexGuard, Random, lock_unswitched};

use super::FileKind;
use crate::{Device, Error, ErrorKind, Fault, MemoryDevice, MemoryProfile, Result};

thread_local! {
    /// All tasks of a simulation run on one thread.
    static ATTACHED: RefCell<Option<Arc<SimulatedFiles>>> = const { RefCell::new(None) };
}

/// The file system of the simulations that run on this thread.
pub(super) fn attached() -> Option<Arc<SimulatedFiles>> {
    ATTACHED.with_borrow(Clone::clone)
}

/// Until it is dropped, the operations of this thread on files are those of a [`SimulatedFiles`].
#[derive(Debug)]
#[must_use]
pub struct AttachedFiles {
    before: Option<Arc<SimulatedFiles>>,
}

impl Drop for AttachedFiles {
    fn drop(&mut self) {
        ATTACHED.replace(self.before.take());
    }
}

/// A file system in memory that loses power. It outlives simulations.
///
/// ```
/// use std::path::Path;
/// use tantalum_device::{MemoryProfile, files};
/// use tantalum_rt::Random;
///
/// let system = files::SimulatedFiles::new(MemoryProfile::default());
/// let attached = system.attach();
/// files::replace(Path::new("/settings"), b"a = 1")?;
/// files::remove(Path::new("/settings"))?;
/// files::sync_directory(Path::new("/"))?;
/// system.power_cut(&mut Random::with_seed(1));
/// assert!(!files::exists(Path::new("/settings")));
/// # drop(attached);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct SimulatedFiles {
    profile: MemoryProfile,
    state: Mutex<State>,
}

#[derive(Debug, Clone)]
struct State {
    nodes: BTreeMap<usize, Node>,
    made: usize,
    /// There is no space for another device.
    is_full: bool,
    /// Operations on directories that are done before the power goes.
    left: u64,
    operations: u64,
}

const ROOT: usize = 0;

#[derive(Debug, Clone)]
enum Node {
    Directory(Directory),
    Text { bytes: Vec<u8>, is_durable: bool },
    Device { device: Arc<MemoryDevice>, is_durable: bool },
}

#[derive(Debug, Clone, Default)]
struct Directory {
    names: BTreeMap<OsString, usize>,
    durable: BTreeMap<OsString, usize>,
    /// What makes `names` of `durable`.
    changes: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Add(OsString, usize),
    Remove(OsString),
    Rename(OsString, OsString, usize),
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<OsString, usize>) {
        match self {
            Change::Add(name, node) => _ = names.insert(name.clone(), *node),
            Change::Remove(name) => _ = names.remove(name),
            Change::Rename(from, to, node) => {
                if names.get(from) == Some(node) {
                    names.remove(from);
                }
                names.insert(to.clone(), *node);
            }
        }
    }
}

impl Directory {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }
}

impl SimulatedFiles {
    /// An empty root directory. The files behave as `profile` says.
    pub fn new(profile: MemoryProfile) -> Arc<SimulatedFiles> {
        let nodes = [(ROOT, Node::Directory(Directory::default()))].into();
        Arc::new(Self {
            profile,
            state: Mutex::new(State { nodes, made: 1, is_full: false, left: u64::MAX, operations: 0 }),
        })
    }

    /// Lets this thread, and the simulations that run on it, use these files.
    pub fn attach(self: &Arc<Self>) -> AttachedFiles {
        AttachedFiles { before: ATTACHED.replace(Some(Arc::clone(self))) }
    }

    /// Lets the power go in the middle of the operation on directories behind so many.
    pub fn cut_after(&self, operations: u64) {
        self.lock().left = operations;
    }

    /// Operations on directories that were begun.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Whether the disk has no space: then no file can be made that is used as a device.
    pub fn fill_disk(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    /// Whether there is no space for the devices that there are to grow.
    pub fn refuse_growth(&self, is_full: bool) {
        let devices = |node: &Node| match node {
            Node::Device { device, .. } => Some(Arc::clone(device)),
            Node::Directory(_) | Node::Text { .. } => None,
        };
        // Each has a lock of its own, behind which another task may go on.
        let devices: Vec<_> = self.lock().nodes.values().filter_map(devices).collect();
        for device in devices {
            match is_full {
                true => device.inject(Fault::NoSpaceOnGrow),
                false => device.clear_faults(),
            }
        }
    }

    /// Cuts the power of the disk, and restores it.
    pub fn power_cut(&self, random: &mut Random) {
        let mut state = self.lock();
        state.left = u64::MAX;
        for node in state.nodes.values_mut() {
            match node {
                Node::Directory(directory) => {
                    let (mode, changes) = (random.u8(0..4), std::mem::take(&mut directory.changes));
                    let survives = |random: &mut Random| mode == 0 || (mode > 1 && random.bool());
                    for change in changes {
                        if survives(random) {
                            change.apply(&mut directory.durable);
                        }
                    }
                    directory.names = directory.durable.clone();
                }
                Node::Text { is_durable: true, .. } => {}
                Node::Text { bytes, is_durable } => (*bytes, *is_durable) = (remains(bytes, random), true),
                Node::Device { device, is_durable: true } => device.power_cut(random),
                Node::Device { device, is_durable } => {
                    let mut remains = remains(&device.image(), random);
                    remains.truncate(remains.len() / 4096 * 4096);
                    device.load(&remains);
                    *is_durable = true;
                }
            }
        }
        state.forget_unreachable();
    }

    /// The same files, apart from now on: what is written to one file system is not in the other.
    pub fn fork(&self) -> Arc<SimulatedFiles> {
        let mut state = self.lock().clone();
        for node in state.nodes.values_mut() {
            if let Node::Device { device, .. } = node {
                *device = device.fork();
            }
        }
        Arc::new(Self { profile: self.profile.clone(), state: Mutex::new(state) })
    }

    /// Puts what `other` has at `path`, a file or a directory with all in it, in the place of what is there. All is durable.
    ///
    /// # Panics
    /// When `other` has nothing there, or there is no such directory here.
    pub fn take_over(&self, path: &Path, other: &SimulatedFiles) {
        let theirs = other.fork();
        let theirs = theirs.lock();
        let mut state = self.lock();
        let node = theirs.find(path).expect("the other file system has it");
        let copy = state.copy(&theirs, node);
        let (parent, name) = state.place(path).expect("the directory is there");
        let parent = state.directory(parent).expect("a file is in a directory");
        parent.names.insert(name.clone(), copy);
        parent.durable.insert(name, copy);
        state.forget_unreachable();
    }

    /// The paths of all files.
    pub fn files(&self) -> Vec<PathBuf> {
        let state = self.lock();
        let mut found = Vec::new();
        let mut directories = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, node)) = directories.pop() {
            let Some(Node::Directory(directory)) = state.nodes.get(&node) else { continue };
            for (name, node) in &directory.names {
                match state.nodes[node] {
                    Node::Directory(_) => directories.push((path.join(name), *node)),
                    Node::Text { .. } | Node::Device { .. } => found.push(path.join(name)),
                }
            }
        }
        found.sort();
        found
    }

    /// A file system belongs to no task: no other task runs while one holds this lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        lock_unswitched(&self.state)
    }

    /// An operation on directories: it takes a moment, and the power may go before or behind it.
    fn operate<T>(&self, operation: impl FnOnce(&mut State) -> T) -> T {
        tantalum_rt::sleep(Duration::from_micros(10));
        let mut state = self.lock();
        state.operations += 1;
        let (is_last, is_first) = (state.left == 0, state.operations.is_multiple_of(2));
        state.left = state.left.saturating_sub(u64::from(state.left != u64::MAX));
        if is_last && is_first {
            drop(state);
            tantalum_rt::power_cut();
        }
        let done = operation(&mut state);
        drop(state);
        if is_last {
            tantalum_rt::power_cut();
        }
        done
    }

    pub(super) fn kind(&self, path: &Path) -> Option<FileKind> {
        let state = self.lock();
        Some(match state.nodes.get(&state.find(path)?)? {
            Node::Directory(_) => FileKind::Directory,
            Node::Text { .. } | Node::Device { .. } => FileKind::File,
        })
    }

    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.lock();
        match state.find(path).and_then(|node| state.nodes.get(&node)) {
            Some(Node::Text { bytes, .. }) => Ok(bytes.clone()),
            Some(Node::Device { device, .. }) => Ok(device.image()),
            Some(Node::Directory(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let state = self.lock();
        match state.find(path).and_then(|node| state.nodes.get(&node)) {
            Some(Node::Directory(directory)) => Ok(directory.names.keys().cloned().collect()),
            Some(_) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.operate(|state| state.add(path, Node::Directory(Directory::default())))
    }

    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        self.operate(|state| {
            let (parent, name) = state.place(path)?;
            let directory = state.directory(parent)?;
            if !directory.names.contains_key(&name) {
                return Err(io::ErrorKind::NotFound.into());
            }
            directory.change(Change::Remove(name));
            Ok(())
        })
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operate(|state| {
            let ((parent, from), (other, to)) = (state.place(from)?, state.place(to)?);
            assert_eq!(parent, other, "what is renamed stays in its directory");
            let directory = state.directory(parent)?;
            let node = *directory.names.get(&from).ok_or(io::ErrorKind::NotFound)?;
            directory.change(Change::Rename(from, to, node));
            Ok(())
        })
    }

    pub(super) fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.operate(|state| {
            let node = state.find(path).ok_or(io::ErrorKind::NotFound)?;
            let directory = state.directory(node)?;
            directory.changes.clear();
            directory.durable = directory.names.clone();
            Ok(())
        })
    }

    /// Makes a file with these bytes, or writes it anew, and synchronizes it.
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let written = Node::Text { bytes: bytes.to_vec(), is_durable: false };
        self.operate(|state| match state.find(path) {
            Some(node) => {
                state.nodes.insert(node, written);
                Ok(())
            }
            None => state.add(path, written),
        })?;
        self.operate(|state| {
            if let Some(Node::Text { is_durable, .. }) = state.find(path).and_then(|node| state.nodes.get_mut(&node)) {
                *is_durable = true;
            }
        });
        Ok(())
    }

    pub(super) fn open(&self, path: &Path) -> Result<Arc<dyn Device>> {
        let state = self.lock();
        match state.find(path).and_then(|node| state.nodes.get(&node)) {
            Some(Node::Device { device, .. }) => Ok(Arc::clone(device) as Arc<dyn Device>),
            Some(_) => {
                let what = format!("{} is no device; expected a regular file or a block device", path.display());
                Err(Error::new(ErrorKind::InvalidInput, what))
            }
            None => Err(failed(path, "open", io::ErrorKind::NotFound)),
        }
    }

    pub(super) fn create(&self, path: &Path, size_bytes: u64) -> Result<Arc<dyn Device>> {
        if self.lock().is_full {
            return Err(Error::no_space(&name_of(path), 0, size_bytes));
        }
        let seed = self.profile.seed.wrapping_add(self.lock().made as u64);
        let profile = MemoryProfile { seed, ..self.profile.clone() };
        let device = MemoryDevice::with_profile(&*name_of(path), size_bytes, profile);
        let node = Node::Device { device: Arc::clone(&device), is_durable: false };
        self.operate(|state| match state.find(path) {
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
            None => state.add(path, node),
        })
        .map_err(|error: io::Error| failed(path, "create", error.kind()))?;
        self.operate(|state| {
            if let Some(Node::Device { is_durable, .. }) = state.find(path).and_then(|node| state.nodes.get_mut(&node))
            {
                *is_durable = true;
            }
        });
        self.sync_directory(super::parent(path)).map_err(|error| failed(path, "create", error.kind()))?;
        Ok(device)
    }
}

fn name_of(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

fn failed(path: &Path, operation: &'static str, kind: io::ErrorKind) -> Error {
    Error::io(&name_of(path), operation, 0, 0, io::Error::from(kind))
}

/// What a power cut may leave of bytes that were not synchronized.
fn remains(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let part = random.usize(0..=bytes.len());
    match random.u8(0..4) {
        0 => Vec::new(),
        1 => bytes.to_vec(),
        2 => bytes[..part].to_vec(),
        _ => {
            let mut garbage = bytes.to_vec();
            random.fill(&mut garbage[part..]);
            garbage
        }
    }
}

impl State {
    fn find(&self, path: &Path) -> Option<usize> {
        let mut node = ROOT;
        for component in path.components() {
            match component {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => match self.nodes.get(&node)? {
                    Node::Directory(directory) => node = *directory.names.get(name)?,
                    Node::Text { .. } | Node::Device { .. } => return None,
                },
                Component::ParentDir | Component::Prefix(_) => return None,
            }
        }
        Some(node)
    }

    /// The directory that a path is in, which exists, and its name there.
    fn place(&self, path: &Path) -> io::Result<(usize, OsString)> {
        let name = path.file_name().map(OsStr::to_owned).ok_or(io::ErrorKind::InvalidInput)?;
        let parent = self.find(super::parent(path)).ok_or(io::ErrorKind::NotFound)?;
        Ok((parent, name))
    }

    fn directory(&mut self, node: usize) -> io::Result<&mut Directory> {
        match self.nodes.get_mut(&node) {
            Some(Node::Directory(directory)) => Ok(directory),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<()> {
        if self.find(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (parent, name) = self.place(path)?;
        let number = self.made;
        self.directory(parent)?.change(Change::Add(name, number));
        self.made += 1;
        self.nodes.insert(number, node);
        Ok(())
    }

    /// Copies what another state has, with all that is in it.
    fn copy(&mut self, other: &State, node: usize) -> usize {
        let copy = match &other.nodes[&node] {
            Node::Directory(directory) => {
                let names: BTreeMap<_, _> =
                    directory.names.iter().map(|(name, node)| (name.clone(), self.copy(other, *node))).collect();
                Node::Directory(Directory { durable: names.clone(), names, changes: Vec::new() })
            }
            file => file.clone(),
        };
        let number = self.made;
        self.made += 1;
        self.nodes.insert(number, copy);
        number
    }

    fn forget_unreachable(&mut self) {
        let (mut reached, mut found) = (BTreeSet::new(), vec![ROOT]);
        while let Some(node) = found.pop() {
            if let (true, Some(Node::Directory(directory))) = (reached.insert(node), self.nodes.get(&node)) {
                found.extend(directory.names.values().chain(directory.durable.values()).copied());
            }
        }
        self.nodes.retain(|node, _| reached.contains(node));
    }
}
