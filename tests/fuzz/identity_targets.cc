#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "identity/authority.h"
#include "identity/certificate.h"
#include "identity/chained_log.h"
#include "identity/invite.h"
#include "identity/key.h"
#include "identity/registry.h"
#include "tests/fuzz/scratch_file.h"
#include "tests/fuzz/targets.h"

namespace macaw::fuzz {
namespace {

using identity::Certificate;
using identity::PrivateKey;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

// An authority, made once.
struct Ours {
  PrivateKey key = *PrivateKey::Generate();
  Certificate certificate = *identity::MakeAuthorityCertificate(
      key, "fleet", {.from = kNow - absl::Hours(1), .until = kNow + absl::Hours(1)});

  static const Ours& Once() {
    static const auto* const ours = new Ours();
    return *ours;
  }
};

// A PEM file. What does not look like one becomes the bytes inside: a damaged PEM file rarely gets
// past base 64, so that what reads the bytes inside would hardly be tried.
std::string PemOf(absl::string_view kind, absl::string_view bytes) {
  if (absl::StrContains(bytes, "-----BEGIN")) return std::string(bytes);
  constexpr size_t kLine = 48;  // bytes
  std::string pem = absl::StrCat("-----BEGIN ", kind, "-----\n");
  for (size_t at = 0; at < bytes.size(); at += kLine)
    absl::StrAppend(&pem, absl::Base64Escape(bytes.substr(at, kLine)), "\n");
  absl::StrAppend(&pem, "-----END ", kind, "-----\n");
  return pem;
}

// The PEM file, and the bytes inside.
std::vector<std::string> BothForms(const std::string& pem) {
  std::string inside, bytes;
  for (const absl::string_view line : absl::StrSplit(pem, '\n')) {
    if (!absl::StartsWith(line, "-----")) absl::StrAppend(&inside, line);
  }
  MACAW_FUZZ_EXPECT(absl::Base64Unescape(inside, &bytes));
  return {pem, bytes};
}

bool FeedInvite(absl::string_view bytes) {
  const auto invite = identity::Invite::FromCode(bytes);
  if (!invite.ok()) return false;
  const auto again = identity::Invite::FromCode(invite->Code());
  MACAW_FUZZ_EXPECT(again.ok() && again->secret == invite->secret && again->pin == invite->pin);
  return true;
}

std::vector<std::string> Invites() {
  return {identity::Invite{.secret = {1, 2, 3}, .pin = {4, 5, 6}}.Code(),
          identity::Invite::To(Ours::Once().certificate)->Code()};
}

bool FeedCertificate(absl::string_view bytes) {
  const auto certificate = Certificate::FromPem(PemOf("CERTIFICATE", bytes));
  if (!certificate.ok()) return false;
  MACAW_FUZZ_EXPECT(identity::CheckName(certificate->subject().name).ok());
  const auto again = Certificate::FromPem(certificate->Pem());
  MACAW_FUZZ_EXPECT(again.ok() && again->Fingerprint() == certificate->Fingerprint());
  (void)certificate->KeyDigest();
  return true;
}

std::vector<std::string> Certificates() { return BothForms(Ours::Once().certificate.Pem()); }

absl::StatusOr<Certificate> IssuePhone(absl::string_view request) {
  const Ours& ours = Ours::Once();
  return identity::Issue({.key = ours.key, .certificate = ours.certificate}, request,
                         {.name = "phone-7", .role = identity::Role::kDevice},
                         {.from = kNow, .until = kNow + absl::Hours(1)});
}

bool FeedRequest(absl::string_view bytes) {
  const auto issued = IssuePhone(PemOf("CERTIFICATE REQUEST", bytes));
  // What it asks for decides nothing.
  if (issued.ok()) {
    MACAW_FUZZ_EXPECT(issued->subject().name == "phone-7");
    MACAW_FUZZ_EXPECT(issued->subject().role == identity::Role::kDevice);
  }
  return issued.ok();
}

std::vector<std::string> Requests() {
  std::vector<std::string> examples = BothForms(*identity::MakeRequest(Ours::Once().key));
  examples.push_back(*identity::MakeRequest(*PrivateKey::Generate()));
  return examples;
}

bool FeedKey(absl::string_view bytes) {
  const auto key = PrivateKey::FromPem(PemOf("PRIVATE KEY", bytes));
  if (key.ok()) MACAW_FUZZ_EXPECT(PrivateKey::FromPem(key->Pem()).ok());
  return key.ok();
}

std::vector<std::string> Keys() { return BothForms(Ours::Once().key.Pem()); }

// The file of a registry or an audit log.
bool FeedChainedLog(absl::string_view bytes) {
  ScratchFile& file = ScratchFile::Once();
  file.Fill(bytes);
  auto log = identity::ChainedLog::Open(file.path());
  MACAW_FUZZ_EXPECT(log.ok());
  identity::Registry registry;
  uint64_t lines = 0;
  bool applied = true;
  const absl::Status read = log->ReadOn([&](const identity::LogEntry& entry) {
    MACAW_FUZZ_EXPECT(entry.number == ++lines);
    applied &= registry.Apply(entry).ok();
    return absl::OkStatus();
  });
  MACAW_FUZZ_EXPECT(read.ok() || absl::IsDataLoss(read));
  return read.ok() && applied;
}

std::vector<identity::LogEntry> RegistryEntries() {
  identity::Grant grant;
  grant.subject.name = "phone-7";
  grant.owns = {"a", "b"};
  const Certificate certificate = *IssuePhone(*identity::MakeRequest(*PrivateKey::Generate()));
  return {
      identity::Invited(grant, DigestOf("secret"), absl::Hours(24), kNow + absl::Hours(1), kNow),
      identity::Enrolled(certificate, kNow), identity::Renewed(certificate, kNow),
      identity::Assigned("phone-7", {"c"}, false, kNow),
      identity::Revoked("phone-7", "lost", kNow)};
}

std::vector<std::string> ChainedLogs() {
  ScratchFile& file = ScratchFile::Once();
  file.Fill("");
  auto log = *identity::ChainedLog::Open(file.path());
  for (const identity::LogEntry& entry : RegistryEntries()) {
    const absl::Status added = log.Append(
        [](const identity::LogEntry&) { return absl::OkStatus(); }, [&] { return entry; });
    MACAW_FUZZ_EXPECT(added.ok());
  }
  return {*ReadFile(file.path())};
}

// What lines of a registry say: of each line the words before the tabs are what happened, then keys
// and values in turn. The chain of digests, which no fuzzer can make, is left out.
bool FeedRegistry(absl::string_view bytes) {
  identity::Registry registry;
  bool applied = true;
  for (const absl::string_view line : absl::StrSplit(bytes, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, '\t');
    identity::LogEntry entry{.time = kNow, .what = words[0]};
    for (size_t i = 1; i + 1 < words.size(); i += 2) entry.details[words[i]] = words[i + 1];
    applied &= registry.Apply(entry).ok();
  }
  for (const auto& [name, node] : registry.nodes()) MACAW_FUZZ_EXPECT(registry.Find(name) == &node);
  return applied;
}

std::vector<std::string> Registries() {
  std::string text;
  for (const identity::LogEntry& entry : RegistryEntries()) {
    text += entry.what;
    for (const auto& [key, value] : entry.details) absl::StrAppend(&text, "\t", key, "\t", value);
    text += '\n';
  }
  text.pop_back();
  return {text};
}

}  // namespace

std::vector<Target> IdentityTargets() {
  return {{"invite", FeedInvite, Invites},
          {"certificate", FeedCertificate, Certificates},
          {"request", FeedRequest, Requests},
          {"key", FeedKey, Keys},
          {"chained_log", FeedChainedLog, ChainedLogs},
          {"registry", FeedRegistry, Registries}};
}

}  // namespace macaw::fuzz
