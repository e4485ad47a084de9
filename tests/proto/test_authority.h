#pragma once

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "core/files.h"
#include "identity/authority.h"
#include "testing/temporary_folder.h"

namespace macaw::wire {

// An authority in a folder of its own, and nodes that it has certified.
class TestAuthority {
 public:
  explicit TestAuthority(absl::Time now = absl::Now()) {
    EXPECT_TRUE(identity::Authority::Create(folder_ / "authority", "test", now).ok());
    authority_ = *identity::Authority::Open(folder_ / "authority");
  }

  identity::Authority& operator*() { return *authority_; }
  identity::Authority* get() { return authority_.get(); }
  const std::string& path() const { return folder_.path(); }

  identity::Invite InviteFor(const std::string& name, identity::Role role = identity::Role::kDevice,
                             absl::Time now = absl::Now(),
                             absl::Duration lifetime = identity::kNodeLifetime) {
    identity::NewNode node{.grant = {.subject = {name, role}, .owns = {name}},
                           .lifetime = lifetime};
    return *identity::Invite::FromCode(*authority_->InviteNode(node, now));
  }
  // Where a node's files are; nothing is in the folder before it has enrolled.
  identity::IdentityFiles FilesOf(const std::string& name) {
    EXPECT_TRUE(MakeDirectories(folder_ / name).ok());
    return identity::IdentityFiles::In(folder_ / name);
  }
  // The files of a node that has enrolled at `now`.
  identity::IdentityFiles Certified(const std::string& name,
                                    identity::Role role = identity::Role::kDevice,
                                    absl::Time now = absl::Now(),
                                    absl::Duration lifetime = identity::kNodeLifetime) {
    const identity::IdentityFiles files = FilesOf(name);
    const identity::PrivateKey key = *identity::ReadOrMakeKey(files.key);
    const auto certificate =
        authority_->Enrol(InviteFor(name, role, now, lifetime), *identity::MakeRequest(key), now);
    EXPECT_TRUE(certificate.ok()) << certificate.status();
    EXPECT_TRUE(AtomicWriteFile(files.certificate, certificate->Pem()).ok());
    EXPECT_TRUE(AtomicWriteFile(files.authority, authority_->certificate().Pem()).ok());
    return files;
  }

 private:
  testing_support::TemporaryFolder folder_;
  std::unique_ptr<identity::Authority> authority_;
};

}  // namespace macaw::wire
