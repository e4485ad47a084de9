// What programs of another release say and understand: their recorded bytes, read by this release.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "macaw/v1/fleet.grpc.pb.h"
#include "proto/wire/remote.h"
#include "server/log/reader.h"
#include "testing/random_message.h"
#include "testing/test_address.h"
#include "tests/compatibility/recording.h"
#include "tests/server/tiny_run.h"

namespace macaw::compatibility {
namespace {

using google::protobuf::TextFormat;
using google::protobuf::util::MessageDifferencer;
using server::fixtures::StartTiny;
using server::fixtures::TemporaryFolder;
using server::fixtures::TinyOptions;

constexpr char kFolder[] = MACAW_SOURCE_DIR "/tests/compatibility";

std::vector<std::string> Recordings() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (absl::StartsWith(entry.path().filename().string(), "fleet-")) files.push_back(entry.path());
  }
  std::erase_if(files, [](const std::string& file) { return !absl::EndsWith(file, ".json"); });
  return files;
}

class Compatibility : public testing::TestWithParam<std::string> {
 protected:
  const Recording recording_ = FromJson(*ReadFile(GetParam()));
};

// Whether `message` has all that `recorded` has. What this release added may be there, too.
template <typename Proto>
void ExpectHolds(const Proto& message, const Proto& recorded) {
  MessageDifferencer differencer;
  differencer.set_scope(MessageDifferencer::PARTIAL);
  std::string difference;
  differencer.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differencer.Compare(recorded, message)) << recorded.GetTypeName() << difference;
}

TEST_P(Compatibility, EachMessageHasTheValuesThatItHad) {
  for (const Message& recorded : recording_.messages) {
    const auto* const type =
        google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(recorded.type);
    ASSERT_NE(type, nullptr) << recorded.type << " is gone";
    const auto* const empty =
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(type);
    const std::unique_ptr<google::protobuf::Message> from_bytes(empty->New());
    const std::unique_ptr<google::protobuf::Message> from_text(empty->New());
    ASSERT_TRUE(from_bytes->ParseFromString(recorded.bytes)) << recorded.type;
    ASSERT_TRUE(TextFormat::ParseFromString(recorded.text, from_text.get())) << recorded.type;
    EXPECT_TRUE(MessageDifferencer::Equals(*from_bytes, *from_text))
        << recorded.type << ": a field has another number, name or type than in "
        << recording_.version;
  }
}

TEST_P(Compatibility, NothingOfAMessageIsLost) {
  int converted = 0;
  wire::RandomMessage random(1);
  wire::ForEachConvertedMessage(random, [&](const auto& example, auto again) {
    using Proto = std::decay_t<decltype(example)>;
    for (const Message& recorded : recording_.messages) {
      if (recorded.type != example.GetTypeName()) continue;
      Proto message;
      ASSERT_TRUE(message.ParseFromString(recorded.bytes)) << recorded.type;
      const auto value = wire::FromWire(message);
      ASSERT_TRUE(value.ok()) << recorded.type << ": " << value.status();
      ExpectHolds(Proto(again(*value)), message);
      ++converted;
    }
  });
  EXPECT_GT(converted, 0);
}

// Sends bytes as they are and returns the reply's.
class RawLink {
 public:
  explicit RawLink(const std::string& address)
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {}

  template <typename Reply>
  Reply Call(const std::string& method, const std::string& request) {
    grpc::ClientContext context;
    const grpc::Slice slice(request);
    const grpc::ByteBuffer bytes(&slice, 1);
    grpc::ByteBuffer answer;
    grpc::CompletionQueue queue;
    const auto call = stub_.PrepareUnaryCall(&context, "/macaw.v1.Fleet/" + method, bytes, &queue);
    grpc::Status status;
    call->StartCall();
    call->Finish(&answer, &status, this);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    EXPECT_TRUE(status.ok()) << method << ": " << status.error_message();
    Reply reply;
    EXPECT_TRUE(!status.ok() ||
                grpc::SerializationTraits<Reply>::Deserialize(&answer, &reply).ok());
    return reply;
  }

 private:
  grpc::GenericStub stub_;
};

// The recorded bytes with the session that this server gave: the last of two values counts, and
// `session` is field 1 of each request.
std::string In(uint64_t session, const std::string& request) {
  v1::HeartbeatRequest only;
  only.set_session(session);
  return request + only.SerializeAsString();
}

TEST_P(Compatibility, AWorkersFirstRoundIsAnswered) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  const wire::SocketFolder socket;
  const auto server = *wire::FleetServer::Start({.listen = socket.address()}, *coordinator);
  RawLink worker(server->address());
  uint64_t session = 0;
  std::set<std::string> made;
  for (const auto& [method, request] : recording_.session) {
    made.insert(method);
    if (method == "Hello") {
      const auto reply = worker.Call<v1::HelloReply>(method, request);
      EXPECT_TRUE(wire::FromWire(reply).ok());
      EXPECT_EQ(reply.major(), 1u);
    } else if (method == "Register") {
      session = worker.Call<v1::RegisterReply>(method, request).session();
      EXPECT_NE(session, 0u);
    } else if (method == "Lease") {
      const auto reply = worker.Call<v1::LeaseReply>(method, In(session, request));
      EXPECT_TRUE(reply.next() == v1::NEXT_WORK || reply.next() == v1::NEXT_COMMIT) << reply.next();
    } else if (method == "Heartbeat") {
      const auto reply = worker.Call<v1::HeartbeatReply>(method, In(session, request));
      EXPECT_TRUE(reply.known());
      EXPECT_EQ(reply.dropped_size(), 0);
    } else {
      ASSERT_EQ(method, "Commit");
      const auto reply = worker.Call<v1::CommitReply>(method, In(session, request));
      EXPECT_EQ(reply.verdict(), v1::VERDICT_ACCEPTED) << reply.reason();
      const auto repeated = worker.Call<v1::CommitReply>(method, In(session, request));
      EXPECT_EQ(repeated.verdict(), v1::VERDICT_DUPLICATE) << repeated.reason();
    }
  }
  EXPECT_THAT(made, testing::ElementsAre("Commit", "Heartbeat", "Hello", "Lease", "Register"));
}

// The session of the log that goes on inside a round, and the clients that it leases in round 2.
struct GoingOn {
  bool goes_on = false;
  size_t leased_in_2 = 0;
};
GoingOn GoingOnIn(const std::string& run_dir) {
  GoingOn found;
  server::log::Reader reader = *server::log::Reader::Open(run_dir + "/rounds.log");
  while (const auto entry = *reader.Next()) {
    if (const auto* opened = std::get_if<server::log::RunOpened>(&entry->record))
      found = {.goes_on = opened->goes_on};
    const auto* leased = std::get_if<server::log::Leased>(&entry->record);
    if (leased != nullptr && leased->round == Round(2))
      found.leased_in_2 += leased->attempts.size();
  }
  return found;
}

TEST_P(Compatibility, AKilledServersRunGoesOnInsideItsRound) {
  const TemporaryFolder folder;
  for (const auto& [path, bytes] : recording_.killed.files) {
    std::filesystem::create_directories(std::filesystem::path(folder / path).parent_path());
    ASSERT_TRUE(AtomicWriteFile(folder / path, bytes).ok());
  }
  server::Options options = TinyOptions(folder.path(), 3);
  options.config.durability = "commit";
  options.resume = true;
  const auto coordinator = StartTiny(std::move(options));
  server::fixtures::FakeWorker worker(*coordinator);
  worker.identity().incarnation = 8;  // it was started again, too
  ASSERT_TRUE(worker.Register().ok());
  worker.RunToEnd();
  ASSERT_TRUE(coordinator->Wait().ok());
  EXPECT_EQ(server::fixtures::RunBytes(folder.path()).digest, recording_.killed.digest);
  const GoingOn session = GoingOnIn(folder.path());
  EXPECT_TRUE(session.goes_on);
  EXPECT_EQ(session.leased_in_2, 3u) << "the fourth client counted before";
}

INSTANTIATE_TEST_SUITE_P(Recordings, Compatibility, testing::ValuesIn(Recordings()),
                         [](const auto& info) {
                           std::string name = std::filesystem::path(info.param).stem();
                           for (char& c : name) {
                             if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace macaw::compatibility
