#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "identity/certificate.h"

namespace macaw::identity {

// The three files with which one end of a connection shows who it is.
struct IdentityFiles {
  std::string key, certificate, authority;
  // node.key, node.crt and authority.crt in a folder.
  static IdentityFiles In(const std::string& folder);
};

struct NodeIdentity {
  PrivateKey key;
  Certificate certificate;
  Certificate authority;
};

// Reads the files and checks that the certificate is of the key. Whether the authority signed it,
// and whether its time has come, is for others to check.
absl::StatusOr<NodeIdentity> ReadIdentity(const IdentityFiles& files);

// Writes a file that only this user can read, as AtomicWriteFile does.
absl::Status WriteSecretFile(const std::string& path, absl::string_view text);

// Reads the key, or makes it where there is none, so that enrolment that was cut off goes on with
// the same key.
absl::StatusOr<PrivateKey> ReadOrMakeKey(const std::string& path);

}  // namespace macaw::identity
