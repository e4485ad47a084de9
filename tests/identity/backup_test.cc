#include "identity/backup.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>

#include "core/fd.h"
#include "core/files.h"
#include "identity/authority.h"
#include "testing/temporary_folder.h"
#include "tests/identity/now.h"

namespace macaw::identity {
namespace {

using fixtures::kNow;
using testing::ElementsAre;
using testing::HasSubstr;

class BackupTest : public testing::Test {
 protected:
  BackupTest() {
    EXPECT_TRUE(Authority::Create(fleet_, "fleet", kNow).ok());
    authority_ = *Authority::Open(fleet_);
  }
  Certificate Enrol(const std::string& name, const PrivateKey& key) {
    const NewNode node{.grant = {.subject = {.name = name}, .owns = {name}}};
    const Invite invite = *Invite::FromCode(*authority_->InviteNode(node, kNow));
    return *authority_->Enrol(invite, *MakeRequest(key), kNow);
  }
  absl::Status Identify(const Certificate& certificate) {
    return authority_->Identify(certificate.Pem(), kNow).status();
  }
  // What a copy that is renamed into place does.
  void LoseTheRegistry() const { std::filesystem::remove(fleet_ + "/registry.jsonl"); }

  const testing_support::TemporaryFolder folder_;
  const std::string fleet_ = folder_ / "fleet", backup_ = folder_ / "backup";
  std::unique_ptr<Authority> authority_;
  const PrivateKey key_ = *PrivateKey::Generate();
};

TEST_F(BackupTest, IsAnAuthorityItself) {
  const Certificate phone = Enrol("phone-7", key_);
  const auto nodes = BackUp(fleet_, backup_);
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  EXPECT_EQ(*nodes, 1u);
  const auto copy = Authority::Open(backup_);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_TRUE((*copy)->Identify(phone.Pem(), kNow).ok());
  struct stat info {};
  ASSERT_EQ(::stat(backup_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat((backup_ + "/authority.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(BackupTest, NeedsANewFolder) {
  ASSERT_TRUE(BackUp(fleet_, backup_).ok());
  EXPECT_EQ(BackUp(fleet_, backup_).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(BackUp(folder_ / "nothing", folder_ / "b").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(BackupTest, BringsALostRegistryBackForAServerThatIsAtWork) {
  const Certificate phone = Enrol("phone-7", key_);
  ASSERT_TRUE(BackUp(fleet_, backup_).ok());
  LoseTheRegistry();
  const auto restored = Restore(backup_, fleet_, kNow);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->nodes, 1u);
  EXPECT_TRUE(Identify(phone).ok());
  EXPECT_FALSE(FileExists(fleet_ + "/.restore"));
}

TEST_F(BackupTest, BringsAWholeFolderBack) {
  const Certificate phone = Enrol("phone-7", key_);
  ASSERT_TRUE(BackUp(fleet_, backup_).ok());
  const std::string other = folder_ / "other/place";
  ASSERT_TRUE(Restore(backup_, other, kNow).ok());
  const auto authority = Authority::Open(other);
  ASSERT_TRUE(authority.ok()) << authority.status();
  EXPECT_TRUE((*authority)->Identify(phone.Pem(), kNow).ok());
  struct stat info {};
  ASSERT_EQ(::stat((other + "/authority.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(BackupTest, BringsAKeyBackAndLeavesTheRegistry) {
  ASSERT_TRUE(BackUp(fleet_, backup_).ok());
  const Certificate phone = Enrol("phone-7", key_);
  std::filesystem::remove(fleet_ + "/authority.key");
  const auto restored = Restore(backup_, fleet_, kNow);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->nodes, 1u) << "the registry has a node more than the backup";
  EXPECT_TRUE((*Authority::Open(fleet_))->Identify(phone.Pem(), kNow).ok());
}

// What can be read of a damaged registry is kept.
TEST_F(BackupTest, TakesNoRevocationBackThatCanBeRead) {
  const Certificate phone = Enrol("phone-7", key_);
  ASSERT_TRUE(BackUp(fleet_, backup_).ok());
  ASSERT_TRUE(authority_->Revoke("phone-7", "stolen", kNow).ok());
  {
    std::ofstream damage(fleet_ + "/registry.jsonl", std::ios::app);
    damage << "{\"number\": 9}\n";
  }
  const auto restored = Restore(backup_, fleet_, kNow);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->lost, 0u);
  EXPECT_THAT((*Authority::Open(fleet_))->Identify(phone.Pem(), kNow).status().message(),
              HasSubstr("was revoked: stolen"));
}

// Restore waits at the head of the backup, which is a pipe, when it has read the registry.
TEST_F(BackupTest, LosesNothingThatIsEnteredMeanwhile) {
  const Certificate phone = Enrol("phone-7", key_);
  ASSERT_TRUE(BackUp(fleet_, backup_).ok());
  std::filesystem::remove(fleet_ + "/server.key");
  const std::string head = backup_ + "/registry.jsonl.head", text = *ReadFile(head);
  std::filesystem::remove(head);
  ASSERT_EQ(::mkfifo(head.c_str(), 0600), 0);
  auto restored =
      std::async(std::launch::async, [this] { return Restore(backup_, fleet_, kNow).status(); });
  Fd checked(::open(head.c_str(), O_WRONLY | O_CLOEXEC));  // whether the backup is whole
  const std::string next = folder_ / "next";
  ASSERT_EQ(::mkfifo(next.c_str(), 0600), 0);
  std::filesystem::rename(next, head);
  ASSERT_TRUE(WriteAll(checked, BytesOf(text)));
  checked.Close();
  Fd read(::open(head.c_str(), O_WRONLY | O_CLOEXEC));
  auto revoked = std::async(std::launch::async,
                            [this] { return authority_->Revoke("phone-7", "stolen", kNow); });
  // It waits for Restore. Without the lock it would be done by now.
  EXPECT_EQ(revoked.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  ASSERT_TRUE(WriteAll(read, BytesOf(text)));
  read.Close();
  EXPECT_TRUE(restored.get().ok());
  EXPECT_TRUE(revoked.get().ok());
  EXPECT_THAT(Identify(phone).message(), HasSubstr("was revoked: stolen"));
  EXPECT_THAT((*Authority::Open(fleet_))->Identify(phone.Pem(), kNow).status().message(),
              HasSubstr("was revoked: stolen"));
}

// A revocation whose line was torn is nowhere; that it is lost is said.
TEST_F(BackupTest, ARegistryThatLacksSignedLinesIsRefusedUntilItIsRestored) {
  const Certificate phone = Enrol("phone-7", key_);
  ASSERT_TRUE(BackUp(fleet_, backup_).ok());
  ASSERT_TRUE(authority_->Revoke("phone-7", "stolen", kNow).ok());
  const std::string path = fleet_ + "/registry.jsonl", whole = *ReadFile(path);
  authority_.reset();
  ASSERT_TRUE(AtomicWriteFile(path, absl::string_view(whole).substr(0, whole.size() - 30)).ok());
  const absl::Status refused = Authority::Open(fleet_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("has 2 lines, and 3 were signed"));
  EXPECT_THAT(refused.message(), HasSubstr("macaw pki restore"));
  const auto restored = Restore(backup_, fleet_, kNow);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->lost, 1u);
  EXPECT_TRUE(Authority::Open(fleet_).ok());
}

// The registry went on from an older copy than the backup. What was revoked in it stays revoked,
// whether the backup knows the node or not.
TEST_F(BackupTest, TakesNoRevocationOfAnotherHistoryBack) {
  const PrivateKey other = *PrivateKey::Generate();
  const Certificate phone = Enrol("phone-7", key_);
  const std::string path = fleet_ + "/registry.jsonl", earlier = *ReadFile(path);
  Enrol("second", *PrivateKey::Generate());
  ASSERT_TRUE(BackUp(fleet_, backup_).ok());
  ASSERT_TRUE(AtomicWriteFile(path, earlier).ok());
  const Certificate late = Enrol("late", other);
  ASSERT_TRUE(authority_->Revoke("phone-7", "stolen", kNow).ok());
  ASSERT_TRUE(authority_->Revoke("late", "sold", kNow).ok());
  const auto restored = Restore(backup_, fleet_, kNow);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_THAT(restored->revoked, ElementsAre("late", "phone-7"));
  EXPECT_THAT(Identify(phone).message(), HasSubstr("was revoked: stolen"));
  EXPECT_THAT(Identify(late).message(), HasSubstr("was revoked: sold"));
  EXPECT_FALSE(authority_->CheckMayRenew(late.Pem(), kNow).ok());
}

TEST_F(BackupTest, ChangesNothingWhereThereIsNothingToRestore) {
  ASSERT_TRUE(BackUp(fleet_, backup_).ok());
  const Certificate phone = Enrol("phone-7", key_);  // the registry has more than the backup
  const absl::Status status = Restore(backup_, fleet_, kNow).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("there is nothing to restore"));
  EXPECT_TRUE(Identify(phone).ok());
}

TEST_F(BackupTest, IsNotPutIntoTheFolderOfAnotherAuthority) {
  ASSERT_TRUE(BackUp(fleet_, backup_).ok());
  const std::string other = folder_ / "other";
  ASSERT_TRUE(Authority::Create(other, "fleet", kNow).ok());
  const std::string key = *ReadFile(other + "/authority.key");
  EXPECT_THAT(Restore(backup_, other, kNow).status().message(), HasSubstr("another authority"));
  EXPECT_EQ(*ReadFile(other + "/authority.key"), key);
}

// A node that renewed after the backup was made is unknown to it, and renews again.
TEST_F(BackupTest, LocksNobodyOutWhoRenewedSince) {
  const Certificate phone = Enrol("phone-7", key_);
  ASSERT_TRUE(BackUp(fleet_, backup_).ok());
  const absl::Time due = kNow + kNodeLifetime * 5 / 6;
  const auto renewed = authority_->Renew(phone, *MakeRequest(key_), due);
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  LoseTheRegistry();
  ASSERT_TRUE(Restore(backup_, fleet_, due).ok());
  EXPECT_FALSE(authority_->Identify(renewed->Pem(), due).ok());
  ASSERT_TRUE(authority_->CheckMayRenew(renewed->Pem(), due).ok());
  const auto again = authority_->Renew(*renewed, *MakeRequest(key_), due);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(authority_->Identify(again->Pem(), due).ok());
}

}  // namespace
}  // namespace macaw::identity
