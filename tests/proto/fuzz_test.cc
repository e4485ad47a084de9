#include <google/protobuf/stubs/logging.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include "core/checksum.h"
#include "core/digest.h"
#include "proto/wire/bulk_stream.h"
#include "proto/wire/chunk.h"
#include "proto/wire/limits.h"
#include "proto/wire/refusal.h"
#include "proto/wire/remote.h"
#include "testing/random_message.h"

// Any byte string is accepted or refused with a reason, never a crash. Seeds are fixed, so that a
// failure repeats.
namespace macaw::wire {
namespace {

std::string RandomBytes(RandomStream& stream, size_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(stream.NextU32());
  return bytes;
}

// A few bytes changed, removed, doubled or cut off.
std::string Mutated(RandomStream& stream, std::string bytes) {
  for (uint64_t n = 1 + stream.Below(4); n > 0 && !bytes.empty(); --n) {
    const size_t at = stream.Below(bytes.size());
    switch (stream.Below(5)) {
      case 0:
        bytes[at] = static_cast<char>(stream.NextU32());
        break;
      case 1:
        bytes[at] ^= static_cast<char>(1 << stream.Below(8));
        break;
      case 2:
        bytes.erase(at, 1 + stream.Below(8));
        break;
      case 3:
        bytes.insert(at, RandomBytes(stream, 1 + stream.Below(8)));
        break;
      default:
        bytes.resize(at);
    }
  }
  return bytes;
}

// Parses and converts; a refusal must be typed. What was accepted is sent again as a message that
// is accepted, too, and is sent again as the same. Returns whether the bytes were accepted.
template <typename Message, typename F>
bool Feed(const std::string& bytes, F again) {
  Message message;
  if (!message.ParseFromString(bytes)) return false;
  const auto value = FromWire(message);
  if (!value.ok()) {
    EXPECT_NE(ReasonOf(value.status()), v1::Refusal::REASON_UNSPECIFIED) << value.status();
    return false;
  }
  const Message sent = again(*value);
  const auto back = FromWire(sent);
  if (!back.ok()) {
    ADD_FAILURE() << back.status() << "\n" << sent.DebugString();
    return true;
  }
  EXPECT_EQ(again(*back).SerializeAsString(), sent.SerializeAsString()) << sent.DebugString();
  return true;
}

TEST(Fuzz, EveryConversionSurvivesMutations) {
  const google::protobuf::LogSilencer quiet;  // it reports every string that is not UTF-8
  RandomStream stream({.seed = 17});
  int accepted = 0, refused = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomMessage random(seed);
    ForEachConvertedMessage(random, [&](const auto& message, auto again) {
      using Message = std::decay_t<decltype(message)>;
      const std::string good = message.SerializeAsString();
      for (int i = 0; i < 8; ++i)
        ++(Feed<Message>(Mutated(stream, good), again) ? accepted : refused);
      Feed<Message>(RandomBytes(stream, stream.Below(200)), again);
    });
  }
  // Both paths were really walked.
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 1000);
}

// The same bytes cut into slices at random places.
grpc::ByteBuffer Sliced(RandomStream& stream, const std::string& bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = std::min<size_t>(1 + stream.Below(40), bytes.size() - at);
    slices.emplace_back(bytes.data() + at, n);
    at += n;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

TEST(Fuzz, ChunksAreReadFromAnySlicesAsProtobufReadsThem) {
  RandomStream stream({.seed = 23});
  int accepted = 0;
  const google::protobuf::LogSilencer quiet;
  for (int i = 0; i < 20'000; ++i) {
    const fleet::Blob blob = fleet::RandomBlob(1 + stream.Below(120), i);
    std::string bytes =
        ToString(EncodeChunk(blob.bytes, 0, blob.size, i % 2 == 0 ? blob.digest : Digest{},
                             SessionId(i % 3 == 0 ? UINT64_MAX - i : 0)));
    if (i % 4 != 0) bytes = Mutated(stream, bytes);
    const auto chunk = DecodeChunk(Sliced(stream, bytes));
    if (!chunk.ok()) {
      EXPECT_NE(ReasonOf(chunk.status()), v1::Refusal::REASON_UNSPECIFIED);
      EXPECT_NE(i % 4, 0) << chunk.status();
      continue;
    }
    v1::Chunk message;
    if (!message.ParseFromString(bytes))
      continue;  // ours is a little more lenient about groups of unknown fields
    ++accepted;
    EXPECT_EQ(chunk->offset, message.offset());
    EXPECT_EQ(chunk->checksum, message.checksum());
    EXPECT_EQ(chunk->session.value, message.session());
    std::string data;
    for (const auto piece : chunk->data)
      data.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    EXPECT_EQ(data, message.data());
    EXPECT_EQ(chunk->size, data.size());
    EXPECT_EQ(Checksum(chunk->data), Checksum(BytesOf(absl::string_view(data))));
  }
  EXPECT_GT(accepted, 5000);
}

TEST(Fuzz, AChunkLargerThanAgreedIsRefused) {
  v1::Chunk message;
  message.set_data(std::string(kChunkBytes + 1, 'x'));
  EXPECT_EQ(ReasonOf(DecodeChunk(FromString(message.SerializeAsString())).status()),
            v1::Refusal::REASON_TOO_LARGE);
}

class RawServer : public testing::Test {
 protected:
  void SetUp() override {
    auto server = FleetServer::Start({.listen = ":0"}, handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  }
  // Sends raw messages to a method; the status of the call.
  absl::Status Send(const std::string& method, const std::vector<std::string>& messages) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    BulkStream stream(stub, "/macaw.v1.Fleet/" + method, context, FromSeconds(20));
    for (const std::string& message : messages) {
      if (!stream.Write(FromString(message))) return stream.Finish();
    }
    if (stream.WritesDone()) {
      while (stream.Read().has_value()) {
      }
    }
    return stream.Finish();
  }

  fleet::FakeHandler handler_;
  std::unique_ptr<FleetServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(RawServer, RawUploadsAndDownloadsSurviveAnything) {
  const google::protobuf::LogSilencer quiet;
  RandomStream stream({.seed = 31});
  const fleet::Blob blob = fleet::RandomBlob(5000, 1);
  handler_.Serve(blob);
  v1::BeginUploadRequest begin = ToWire(fleet::UploadOffer{
      .session = SessionId(1), .digest = blob.digest, .size = blob.size, .round = Round(1)});
  const std::string good = ToString(EncodeChunk(blob.bytes, 0, 1000, blob.digest, SessionId(1)));
  v1::DownloadRequest download;
  download.set_digest(ToWire(blob.digest));
  for (int i = 0; i < 150; ++i) {
    Send("BeginUpload", {begin.SerializeAsString()}).IgnoreError();
    std::vector<std::string> messages;
    for (uint64_t n = stream.Below(3); n > 0; --n) messages.push_back(Mutated(stream, good));
    messages.push_back(RandomBytes(stream, stream.Below(60)));
    EXPECT_FALSE(Send("Upload", messages).ok());
    Send("Download", {Mutated(stream, download.SerializeAsString())}).IgnoreError();
    for (const char* method :
         {"Hello", "Register", "Lease", "Heartbeat", "Commit", "Release", "BeginUpload"}) {
      if (i < 30) Send(method, {RandomBytes(stream, stream.Below(80))}).IgnoreError();
    }
  }
  // Still there, and still right.
  EXPECT_TRUE(Send("Download", {download.SerializeAsString()}).ok());
}

TEST_F(RawServer, NamesTheReason) {
  const fleet::Blob blob = fleet::RandomBlob(5000, 1);
  const std::string chunk = ToString(EncodeChunk(blob.bytes, 0, 1000, blob.digest, SessionId(1)));
  EXPECT_EQ(ReasonOf(Send("Upload", {chunk})), v1::Refusal::REASON_NOT_BEGUN);
  EXPECT_EQ(ReasonOf(Send("Upload", {})), v1::Refusal::REASON_MALFORMED);
  const v1::BeginUploadRequest begin = ToWire(fleet::UploadOffer{
      .session = SessionId(1), .digest = blob.digest, .size = blob.size, .round = Round(1)});
  ASSERT_TRUE(Send("BeginUpload", {begin.SerializeAsString()}).ok());
  std::string damaged = chunk;
  damaged.back() ^= 1;
  EXPECT_EQ(ReasonOf(Send("Upload", {damaged})), v1::Refusal::REASON_CHECKSUM);
  EXPECT_EQ(
      ReasonOf(Send("Upload", {chunk, ToString(EncodeChunk(blob.bytes, 3000, 1000, Digest{}))})),
      v1::Refusal::REASON_OFFSET);
  v1::DownloadRequest behind;
  handler_.Serve(blob);
  behind.set_digest(ToWire(blob.digest));
  behind.set_offset(5001);
  EXPECT_EQ(ReasonOf(Send("Download", {behind.SerializeAsString()})), v1::Refusal::REASON_OFFSET);
  v1::HelloRequest future;
  future.set_major(2);
  EXPECT_EQ(ReasonOf(Send("Hello", {future.SerializeAsString()})), v1::Refusal::REASON_VERSION);
  // Past gRPC's own limit: refused before any of our code sees it.
  EXPECT_EQ(Send("Commit", {std::string(kMaxMessageBytes + 1, 'x')}).code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace macaw::wire
