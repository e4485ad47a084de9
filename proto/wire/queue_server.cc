// The calls that concern the queue of a standing server.
#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/status.h"
#include "macaw/v1/admin.grpc.pb.h"
#include "proto/wire/admin.h"
#include "proto/wire/admin_listener.h"
#include "proto/wire/limits.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

// Sends files to one caller, one after the other. What is written to a file meanwhile is left out.
class ResultsCall final : public grpc::ServerWriteReactor<v1::ResultsPiece> {
 public:
  explicit ResultsCall(absl::StatusOr<std::vector<admin::ResultFile>> files) {
    if (!files.ok()) {
      Finish(ToGrpc(files.status()));
      return;
    }
    files_ = *std::move(files);
    Go();
  }

  void OnWriteDone(bool ok) override {
    if (ok) return Go();
    Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller has gone"));
  }
  void OnDone() override { delete this; }

 private:
  // Sends the next piece, or ends the call. There is one write at a time.
  void Go() {
    piece_.Clear();
    if (left_ == 0 && next_ < files_.size()) {
      const absl::Status opened = Open(files_[next_++]);
      if (!opened.ok()) return Finish(ToGrpc(opened));
    } else if (left_ == 0) {
      return Finish(grpc::Status::OK);
    }
    std::string& data = *piece_.mutable_data();
    data.resize(std::min<uint64_t>(left_, kPiece));
    if (!file_.read(data.data(), static_cast<std::streamsize>(data.size())) && !data.empty())
      return Finish(ToGrpc(absl::DataLossError(absl::StrCat(path_, " cannot be read"))));
    left_ -= data.size();
    StartWrite(&piece_);
  }

  absl::Status Open(const admin::ResultFile& file) {
    path_ = file.path;
    file_ = std::ifstream(path_, std::ios::binary);
    MACAW_ASSIGN_OR_RETURN(left_, FileSize(path_));
    piece_.set_file(file.name);
    piece_.set_size(left_);
    return absl::OkStatus();
  }

  static constexpr uint64_t kPiece = 256 << 10;

  std::vector<admin::ResultFile> files_;
  size_t next_ = 0;
  std::string path_;  // of the open file
  std::ifstream file_;
  uint64_t left_ = 0;  // bytes of it that were not sent yet
  v1::ResultsPiece piece_;
};

class QueueService final : public v1::Queue::CallbackService {
 public:
  // `gate`: null for a server without TLS.
  QueueService(std::shared_ptr<Gate> gate, admin::QueueHandler& handler)
      : gate_(std::move(gate)), handler_(handler) {}

  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const v1::SubmitRequest* request,
                                   v1::ChangeReply* reply) override {
    return Answer(*context, *reply, [&]() -> absl::StatusOr<std::string> {
      MACAW_ASSIGN_OR_RETURN(Asked asked, ReadChange(gate_.get(), *context, request->change()));
      if (request->name().size() > kMostText) return TooLong("name");
      if (request->plan().size() > kMaxPlanBytes)
        return Malformed("plan", absl::StrCat("is longer than ", kMaxPlanBytes, " bytes"));
      return handler_.Submit({.request_id = std::move(asked.request_id),
                              .name = request->name(),
                              .by = std::move(asked.by),
                              .plan = request->plan()});
    });
  }

  grpc::ServerUnaryReactor* Withdraw(grpc::CallbackServerContext* context,
                                     const v1::WithdrawRequest* request,
                                     v1::ChangeReply* reply) override {
    return Answer(*context, *reply, [&]() -> absl::StatusOr<std::string> {
      MACAW_ASSIGN_OR_RETURN(const Asked asked,
                             ReadChange(gate_.get(), *context, request->change()));
      return handler_.Withdraw(request->name(), asked.by, asked.reason);
    });
  }

  grpc::ServerUnaryReactor* Runs(grpc::CallbackServerContext* context, const v1::RunsRequest*,
                                 v1::RunsReply* reply) override {
    reply->set_json(handler_.Runs());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerWriteReactor<v1::ResultsPiece>* Results(grpc::CallbackServerContext*,
                                                      const v1::ResultsRequest* request) override {
    absl::StatusOr<std::vector<admin::ResultFile>> files = handler_.Results(request->name());
    if (files.ok() && !request->folders()) {  // a tool of 0.1.0 takes none
      std::erase_if(*files, [](const admin::ResultFile& file) {
        return file.name.find('/') != std::string::npos;
      });
    }
    return new ResultsCall(std::move(files));
  }

 private:
  template <typename Call>
  static grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context,
                                          v1::ChangeReply& reply, const Call& call) {
    const absl::StatusOr<std::string> said = call();
    if (said.ok()) reply.set_text(ShortCleanText(*said));
    grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
    reactor->Finish(ToGrpc(said.status()));
    return reactor;
  }

  const std::shared_ptr<Gate> gate_;
  admin::QueueHandler& handler_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const AdminOptions& options,
                                                                admin::QueueHandler& handler) {
  return ListenForOperators(options, [&handler](std::shared_ptr<Gate> gate) {
    return std::make_unique<QueueService>(std::move(gate), handler);
  });
}

}  // namespace macaw::wire
