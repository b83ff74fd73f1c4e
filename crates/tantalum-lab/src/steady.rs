//! Devices in use, not as they come from the factory.

use tantalum_flash::{Kind, Profile, ftl::hybrid::InitialState};

/// The same drive, all of it written once before, where its profile leaves that open: a log-block translation layer then
/// copies in its merges what it copies in use.
pub(crate) fn in_use(mut profile: Profile) -> Profile {
    match &mut profile.device {
        Kind::UsbDrive(drive) => drive.ftl.initial_state = InitialState::Steady,
        Kind::BlockSsd(drive) => drive.ftl.initial_state = InitialState::Steady,
        _ => {}
    }
    profile
}
