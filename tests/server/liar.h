#pragma once

#include "tests/server/lies.h"

namespace macaw::server {

// A worker that makes every call of the fleet with false values, over a real socket. Where rounds
// do not wait for each other it learns so from its leases.
class Liar {
 public:
  Liar(const std::string& address, uint64_t seed, Pace& pace, const std::string& name = "liar")
      : name_(name),
        address_(address),
        channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        stub_(channel_),
        worker_(*wire::Dial({.server = address, .token = TokenOf(name)}), name),
        random_({.seed = seed}),
        messages_(seed),
        pace_(pace) {}

  fleet::RegisterRequest& identity() { return worker_.identity(); }  // change it before Join
  void Join() {
    worker_.identity().incarnation = ++incarnation_;
    auto reply = worker_.Register();
    // The server reads one registration of a node at a time, and one of the lies may be another.
    while (absl::IsUnavailable(reply.status()) &&
           wire::ReasonOf(reply.status()) == v1::Refusal::REASON_BUSY) {
      reply = worker_.Register();
    }
    ASSERT_TRUE(reply.ok()) << reply.status();
    session_ = reply->session;
    commits_ = 0;
    lease_ = {};
  }

  // Leases a client as an honest worker would, and brings the beginning of its sums. What it is
  // given later depends on its lies.
  void BringSomeSums() {
    const fleet::LeaseRequest request{
        .session = session_, .wanted = 1, .wait = std::chrono::seconds(10)};
    const auto answer = Send("Lease", wire::ToWire(request));
    v1::LeaseReply reply;
    ASSERT_TRUE(answer.has_value() && reply.ParseFromString(*answer));
    const auto lease = wire::FromWire(reply);
    ASSERT_TRUE(lease.ok() && lease->training.has_value()) << lease.status();
    lease_ = *lease;
    const fleet::Blob blob = fleet::RandomBlob(100, 1);
    const auto begun =
        Send("BeginUpload", wire::ToWire(fleet::UploadOffer{.purpose = fleet::BlobPurpose::kSums,
                                                            .session = session_,
                                                            .digest = blob.digest,
                                                            .size = blob.size,
                                                            .round = lease_.training->round}));
    v1::BeginUploadReply taken;
    ASSERT_TRUE(begun.has_value() && taken.ParseFromString(*begun));
    ASSERT_EQ(taken.verdict(), v1::UPLOAD_VERDICT_SEND) << reply.ShortDebugString();
    SendBytes(
        "Upload",
        {wire::ToString(wire::EncodeChunk(blob.bytes, 0, blob.size / 2, blob.digest, session_))});
  }

  void LieUntilTheCallsAreSpent() {
    const google::protobuf::LogSilencer quiet;
    while (pace_.calls() < kCalls) {
      const int before = made_;
      Act();
      pace_.CountCalls(made_ - before);
      if (made_ / 200 != before / 200) LookAtMemory();
    }
    fleet::ReleaseRequest leaving{.session = session_, .leaving = true};
    Send("Release", wire::ToWire(leaving));
  }

  uint64_t peak() const { return peak_; }
  // How often it was told in which round its client counts.
  int told() const { return told_; }
  const std::map<std::string, int>& answers() const { return answers_; }
  std::string AllAnswers() const { return absl::StrJoin(answers_, ", ", absl::PairFormatter(" ")); }

 private:
  void Act() {
    if (arrives_ && random_.Below(8) == 0) return LieAboutAnArrival();
    switch (random_.Below(16)) {
      case 0:
        return Register();
      case 1:
      case 2:
      case 3:
        return Lease();
      case 4:
        return Heartbeat();
      case 5:
      case 6:
      case 7:
      case 8:
        return CommitALie();
      case 9:
        return CommitAnything();
      case 10:
        return Release();
      case 11:
        return Upload();
      case 12:
        return Download();
      case 13:
        return Garbage();
      case 14:
        return Mutated();
      default:
        return random_.Below(40) == 0 ? Flood() : Cancel();
    }
  }

  // Mostly its own session, otherwise a random number.
  SessionId ASession() {
    return random_.Below(4) == 0
               ? SessionId(random_.Below(2) ? random_.NextU64() : random_.Below(9))
               : session_;
  }

  // The last answer, if the call got one.
  std::optional<std::string> SendBytes(const std::string& method,
                                       const std::vector<std::string>& messages,
                                       Duration patience = FromSeconds(20)) {
    ++made_;
    grpc::ClientContext context;
    context.AddMetadata(wire::kTokenKey, TokenOf(name_));
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::milliseconds>(patience));
    wire::BulkStream stream(stub_, "/macaw.v1.Fleet/" + method, context, FromSeconds(20));
    std::optional<std::string> answer;
    bool open = true;
    for (const std::string& message : messages)
      open = open && stream.Write(wire::FromString(message));
    if (open && stream.WritesDone()) {
      while (const auto got = stream.Read()) answer = wire::ToString(*got);
    }
    const absl::Status status = stream.Finish();
    // A server that had crashed would neither refuse nor answer.
    EXPECT_FALSE(absl::IsUnavailable(status) &&
                 wire::ReasonOf(status) == v1::Refusal::REASON_UNSPECIFIED)
        << method << ": " << status;
    ++answers_[absl::StrCat(method, " ", absl::StatusCodeToString(status.code()))];
    return status.ok() ? answer : std::nullopt;
  }
  template <typename Message>
  std::optional<std::string> Send(const std::string& method, const Message& message,
                                  Duration patience = FromSeconds(20)) {
    return SendBytes(method, {message.SerializeAsString()}, patience);
  }

  void Register() {
    if (random_.Below(4) == 0) {
      Send("Register", messages_.Make<v1::RegisterRequest>());
      return;
    }
    if (random_.Below(3) == 0) {  // its session ends, and with it all its leases
      ++made_;
      return Join();
    }
    fleet::RegisterRequest request = worker_.identity();
    // worker-0 and worker-1 are honest workers. A registration under such a name, if it were
    // accepted, would end the honest worker's session.
    const std::string names[] = {name_, "worker-0", "worker-1", "nobody"};
    request.name = names[random_.Below(4)];
    request.incarnation = random_.NextU64();
    switch (random_.Below(arrives_ ? 11 : 10)) {
      case 0:
        request.clients = random_.NextU64();
        break;
      case 1:
        request.data_digest = DigestOf("other data");
        break;
      case 2:
        request.central_test_rows = random_.NextU64();
        break;
      case 3:
        request.classes = -1;
        break;
      case 4:
        request.input_shape.assign(random_.Below(100'000), -3);
        break;
      case 5:
        request.profile.trainer = std::string(100, 'x');
        break;
      case 6:
        request.slots = 0;
        break;
      case 7:
        request.name = "";
        break;
      case 8:
        for (uint64_t n = random_.Below(1000); n > 0; --n)
          request.died_running.push_back({ClientId(n % 8), {1, 1'000'000 + n}});
        request.clients = 7;
        break;
      case 10:
        request.arrives = false;
        break;
      default:
        request.table = fleet::RandomBlob(32, random_.NextU64());
    }
    Send("Register", wire::ToWire(request, {.max_inline = 1 << 20}));
  }

  void Lease(Duration patience = FromSeconds(20), Duration wait = {}) {
    fleet::LeaseRequest request{.session = ASession(),
                                .wanted = random_.NextU32() >> random_.Below(32),
                                .running = random_.Below(2) ? 0 : random_.NextU32(),
                                .wait = wait};
    for (uint64_t n = random_.Below(5); n > 0; --n)
      request.have.push_back(DigestOf(std::to_string(n)));
    const auto answer = Send("Lease", wire::ToWire(request), patience);
    v1::LeaseReply reply;
    if (!answer.has_value() || request.session != session_ || !reply.ParseFromString(*answer))
      return;
    const auto lease = wire::FromWire(reply);
    ASSERT_TRUE(lease.ok()) << lease.status();
    if (lease->next == fleet::Next::kRegister) return Join();
    if (lease->training.has_value() || lease->evaluation.has_value()) lease_ = *lease;
    if (!lease->training.has_value()) return;
    broadcast_ = lease->training->broadcast.channels[0].digest;
    arrives_ = lease->training->arrives;
  }

  // The question in which round the clients of its last lease count.
  fleet::LeaseRequest Arrival() const {
    fleet::LeaseRequest request{
        .session = session_, .running = 1, .wait = std::chrono::milliseconds(20)};
    for (const fleet::Assignment& one : lease_.training->assignments)
      request.trained.push_back({one.client, one.fence});
    return request;
  }
  std::optional<fleet::LeaseReply> Ask(const fleet::LeaseRequest& request) {
    const auto answer = Send("Lease", wire::ToWire(request));
    v1::LeaseReply reply;
    if (!answer.has_value() || !reply.ParseFromString(*answer)) return std::nullopt;
    const auto lease = wire::FromWire(reply);
    EXPECT_TRUE(lease.ok()) << lease.status();
    return lease.ok() ? std::optional(*lease) : std::nullopt;
  }
  bool has_clients() const {
    return lease_.training.has_value() && !lease_.training->assignments.empty();
  }

  // Asks as an honest worker does. False: its clients count in no round now.
  bool Arrive() {
    const auto reply = Ask(Arrival());
    if (!reply.has_value() || !reply->training.has_value()) return false;
    lease_.training = reply->training;
    ++told_;
    return true;
  }

  void LieAboutAnArrival() {
    if (!has_clients()) return Lease();
    fleet::LeaseRequest request = Arrival();
    const size_t lie = random_.Below(ArrivalLies().size());
    ArrivalLies()[lie](request, random_);
    const auto reply = Ask(request);
    EXPECT_FALSE(reply.has_value() && reply->training.has_value())
        << "lie " << lie << " was told a round";
  }

  // Asks for work and closes the connection before the answer.
  void Cancel() { Lease(std::chrono::milliseconds(1 + random_.Below(3)), FromSeconds(30)); }

  void Heartbeat() {
    fleet::HeartbeatRequest request{.session = ASession(),
                                    .progress = random_.NextU64(),
                                    .memory_bytes = random_.Below(1 << 30)};
    for (uint64_t n = random_.Below(2000); n > 0; --n)
      request.held.push_back({ClientId(random_.Below(20)), {1, random_.Below(100)}});
    for (uint64_t n = random_.Below(5); n > 0; --n) Send("Heartbeat", wire::ToWire(request));
  }

  void CommitALie() {
    Lease();
    CommitRequest request{.session = session_, .commit_id = ++commits_};
    size_t lie = 0;
    if (lease_.evaluation.has_value() && !lease_.evaluation->tasks.empty()) {
      worker_.Evaluate(*lease_.evaluation, request);
      for (fleet::EvaluationResult& result : request.evaluations)
        LieAboutAnEvaluation(result, random_);
    }
    // Sometimes it sends a part without having asked for its round.
    const bool asks = has_clients() && lease_.training->arrives && random_.Below(4) > 0;
    if (asks && !Arrive()) return;
    if (has_clients()) {
      worker_.Train(*lease_.training, request);
      std::vector<fixtures::Summand> summands;
      for (const fleet::ClientRecord& record : request.part->included)
        summands.push_back({record.attempt.client, record.weight, record.multiplicity});
      request.part->sums = worker_.Sums(summands);
      lie = random_.Below(Lies().size());
      Lies()[lie](request, random_);
    }
    lease_ = {};
    if (random_.Below(4) == 0) {
      request.ask = fleet::LeaseRequest{
          .session = ASession(), .wanted = 1, .wait = std::chrono::milliseconds(random_.Below(2))};
    }
    const auto answer = Send(
        "Commit", wire::ToWire(request, {.max_inline = random_.Below(8) == 0 ? 0u : 1u << 20}));
    v1::CommitReply reply;
    if (!answer.has_value() || !reply.ParseFromString(*answer)) return;
    // A part without clients counts nothing.
    EXPECT_FALSE(request.part.has_value() && !request.part->included.empty() &&
                 reply.verdict() == v1::VERDICT_ACCEPTED)
        << "lie " << lie << " was taken for the truth";
  }

  void CommitAnything() {
    auto message = messages_.Make<v1::CommitRequest>();
    message.set_session(ASession().value);
    if (random_.Below(4) == 0) message.set_commit_id(UINT64_MAX - random_.Below(2));
    message.mutable_ask()->set_wait_ns(0);
    if (random_.Below(3) == 0) {
      const fleet::Blob blob = fleet::RandomBlob(100, 1);
      *message.mutable_part_blob() = wire::ToWire(blob, {.max_inline = random_.Below(2) * 1000});
      if (random_.Below(2)) message.mutable_part_blob()->set_size((uint64_t{1} << 31) + 64);
    }
    Send("Commit", message);
  }

  void Release() {
    auto message = messages_.Make<v1::ReleaseRequest>();
    message.set_session(ASession().value);
    message.set_leaving(random_.Below(10) == 0);
    if (lease_.training.has_value() && random_.Below(2)) {
      for (const fleet::Assignment& assignment : lease_.training->assignments)
        *message.add_attempts() = wire::ToWire(Attempt{assignment.client, assignment.fence});
    }
    Send("Release", message);
    if (message.leaving() && message.session() == session_.value) Join();
  }

  void Upload() {
    if (!lease_.training.has_value()) Lease();  // what it denied or left out goes to others first
    const fleet::Blob blob = fleet::RandomBlob(1 + random_.Below(3000), random_.Below(50));
    fleet::UploadOffer offer{
        .purpose = static_cast<fleet::BlobPurpose>(random_.Below(3)),
        .session = ASession(),
        .digest = blob.digest,
        .size = random_.Below(2) ? blob.size : random_.NextU64() >> random_.Below(64),
        .round = Round(static_cast<uint32_t>(random_.Below(kRounds + 2))),
        .commit_id = random_.Below(2) ? 0 : random_.NextU64()};
    if (lease_.training.has_value()) offer.round = lease_.training->round;
    if (random_.Below(4) == 0) offer.size = uint64_t{256} << 20;
    if (random_.Below(3) == 0) {  // an offer that the server takes, and chunks that may not fit it
      offer.purpose = fleet::BlobPurpose::kSums;
      offer.session = session_;
      offer.size = blob.size;
      offer.commit_id = 0;
    }
    auto begin = wire::ToWire(offer);
    if (random_.Below(8) == 0) begin.set_purpose(static_cast<v1::BeginUploadRequest::Purpose>(99));
    if (random_.Below(4) == 0) {
      begin.mutable_shared()->set_process(static_cast<uint32_t>(random_.NextU32()));
      begin.mutable_shared()->set_file(random_.NextU32() >> random_.Below(32));
    }
    Send("BeginUpload", begin);
    const size_t size = 1 + random_.Below(blob.size);
    const std::string first =
        wire::ToString(wire::EncodeChunk(blob.bytes, random_.Below(4) == 0 ? blob.size - size : 0,
                                         size, blob.digest, offer.session));
    SendBytes("Upload", {first, first});
  }

  void Download() {
    v1::DownloadRequest message;
    const bool real = !broadcast_.IsZero() && random_.Below(2);
    message.set_digest(real ? wire::ToWire(broadcast_) : std::string(random_.Below(40), 'd'));
    message.set_offset(random_.Below(2) ? 0 : random_.NextU64());
    Send("Download", message);
  }

  static constexpr const char* kMethods[] = {"Hello",     "Register", "Lease",
                                             "Heartbeat", "Commit",   "BeginUpload",
                                             "Upload",    "Download", "Release"};
  std::string AMethod() { return kMethods[random_.Below(std::size(kMethods))]; }

  std::string Bytes(size_t size) {
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>(random_.NextU32());
    return bytes;
  }

  void Garbage() { SendBytes(AMethod(), {Bytes(random_.Below(200))}); }

  // Sends a message of any type, with some bytes changed, to any method. The wait is short, so that
  // the next lies are not delayed.
  void Mutated() {
    std::string bytes;
    uint64_t skip = random_.Below(17);
    wire::ForEachConvertedMessage(messages_, [&](const auto& message, auto) {
      if (skip-- == 0) bytes = message.SerializeAsString();
    });
    for (uint64_t n = random_.Below(4); n > 0 && !bytes.empty(); --n)
      bytes[random_.Below(bytes.size())] = static_cast<char>(random_.NextU32());
    SendBytes(AMethod(), {bytes}, std::chrono::milliseconds(200));
  }

  // Sends many messages at once that are small on the wire and large in memory. Some are in its own
  // session and some in none. Each has its own connection.
  void Flood() {
    constexpr int kAtOnce = 24;
    std::string entries;  // two bytes each
    entries.reserve(wire::kMaxMessageBytes);
    while (entries.size() + 32 < wire::kMaxMessageBytes) entries += {0x2a, 0x00};
    std::vector<std::thread> callers;
    for (int i = 0; i < kAtOnce; ++i) {
      v1::CommitRequest head;
      head.set_session(i % 2 == 0 ? session_.value : random_.NextU64());
      head.set_commit_id(++commits_);
      std::string bytes = head.SerializeAsString();
      if (i % 3 != 0) {  // entries are left_out of its part, otherwise evaluations
        bytes += '\x1a';
        for (uint64_t n = entries.size(); n > 0; n >>= 7)
          bytes += static_cast<char>(n >= 0x80 ? n | 0x80 : n);
      }
      bytes += entries;
      callers.emplace_back([this, bytes = std::move(bytes)] {
        grpc::GenericStub generic(
            grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
        grpc::ClientContext context;
        context.AddMetadata(wire::kTokenKey, TokenOf(name_));
        context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
        wire::BulkStream stream(generic, "/macaw.v1.Fleet/Commit", context, FromSeconds(20));
        if (stream.Write(wire::FromString(bytes)) && stream.WritesDone()) stream.Read();
      });
    }
    LookAtMemory();
    for (std::thread& caller : callers) caller.join();
    made_ += kAtOnce;
    ++answers_["floods"];
  }

  void LookAtMemory() {
    const auto now = ProportionalSetSize();
    if (now.ok()) peak_ = std::max(peak_, *now);
  }

  const std::string name_, address_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  FakeWorker worker_;
  RandomStream random_;
  wire::RandomMessage messages_;
  Pace& pace_;
  SessionId session_;
  uint64_t incarnation_ = 0, commits_ = 0;
  fleet::LeaseReply lease_;
  Digest broadcast_;      // of the newest lease
  bool arrives_ = false;  // as that lease says
  int made_ = 0, told_ = 0;
  uint64_t peak_ = 0;
  std::map<std::string, int> answers_;
};

}  // namespace macaw::server
