#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "core/status.h"
#include "sdk/rules/halves.h"

namespace macaw::sdk::rules {
namespace {

using algorithms::ServerContext;

class ServerHalf final : public algorithms::ServerAlgorithm {
 public:
  static absl::StatusOr<std::unique_ptr<ServerHalf>> Make(const Rule& rule, Opened opened,
                                                          const FlatVector& model) {
    auto half = std::unique_ptr<ServerHalf>(new ServerHalf(rule, std::move(opened)));
    std::vector<NamedPlace> places;
    for (const auto& item : half->schema_.server)
      places.push_back({item.name, item.layout, half->schema_.OfModel(item.layout)});
    MACAW_ASSIGN_OR_RETURN(half->kept_, Arena::Make({{Kind::kServer, std::move(places)}}));
    half->kept_->Put(model.view(), Kind::kServer, 0);
    if (rule.begins) MACAW_RETURN_IF_ERROR(half->Change("begin"));
    return half;
  }

  absl::StatusOr<algorithms::Broadcast> Configure(const ServerContext&) const override {
    algorithms::Broadcast broadcast;
    for (size_t i = 0; i < schema_.travels.down.size(); ++i)
      broadcast.push_back({schema_.travels.down[i].name, kept_->At(Kind::kServer, i)});
    return broadcast;
  }

  absl::StatusOr<algorithms::AfterApply> Apply(const ServerContext& context,
                                               aggregation::Aggregate aggregate) override {
    std::vector<NamedPlace> places;
    Json channels = Json::array();
    std::vector<ConstVectorView> values;
    for (const aggregation::AggregatedChannel& channel : aggregate.channels) {
      const auto known =
          std::ranges::find(schema_.travels.up, channel.name, &aggregation::ChannelSpec::name);
      const bool of_model = known != schema_.travels.up.end() && schema_.OfModel(known->layout);
      const auto place = [&](const FlatVector& vector) {
        places.push_back({"", vector.layout(), of_model});
        values.push_back(vector.view());
        return values.size() - 1;
      };
      Json value, collected = Json::array();
      if (!channel.value.empty()) value = place(channel.value);
      for (const auto& [client, vector] : channel.collected)
        collected.push_back({client.value, place(vector)});
      channels.push_back({channel.name, channel.weight, std::move(value), std::move(collected)});
    }
    MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<Arena> sums,
                           Arena::Make({{Kind::kAggregate, std::move(places)}}));
    for (size_t i = 0; i < values.size(); ++i) sums->Put(values[i], Kind::kAggregate, i);

    Json question = Question("apply", context);
    question["aggregate"] = sums->id();
    question["channels"] = std::move(channels);
    const Arena* const arenas[] = {kept_.get(), sums.get()};
    MACAW_ASSIGN_OR_RETURN(const Json answer, crew_->Ask(std::move(question), arenas));
    crew_->Forget(*sums);
    MACAW_RETURN_IF_ERROR(Take(answer, "apply"));
    for (const auto& [name, value] : answer.at("metrics").items())
      context.Report(name, value.get<double>());
    return answer.at("next_phase").get<bool>() ? algorithms::AfterApply::kNextPhase
                                               : algorithms::AfterApply::kRoundDone;
  }

  ConstVectorView Model() const override { return kept_->At(Kind::kServer, 0); }

  algorithms::ServerState Save() const override {
    algorithms::ServerState state;
    for (size_t i = 0; i < schema_.server.size(); ++i) {
      state.vectors.emplace(schema_.server[i].name, FlatVector::CopyOf(kept_->At(Kind::kServer, i),
                                                                       schema_.server[i].layout));
    }
    state.numbers = numbers_;
    return state;
  }

  absl::Status Load(const algorithms::ServerState& state) override {
    const auto refuse = [](absl::string_view what, absl::string_view name) {
      return absl::InvalidArgumentError(absl::StrCat("the saved state has no ", what, " '", name,
                                                     "' of this layout: it is another rule's"));
    };
    for (const algorithms::NamedLayout& item : schema_.server) {
      const auto found = state.vectors.find(item.name);
      if (found == state.vectors.end() ||
          !algorithms::SameLayout(found->second.layout().get(), item.layout.get())) {
        return refuse("vector", item.name);
      }
    }
    for (const auto& [name, number] : numbers_) {
      if (!state.numbers.contains(name)) return refuse("number", name);
    }
    for (size_t i = 0; i < schema_.server.size(); ++i)
      kept_->Put(state.vectors.at(schema_.server[i].name).view(), Kind::kServer, i);
    for (auto& [name, number] : numbers_) number = state.numbers.at(name);
    return absl::OkStatus();
  }

  absl::Status ForgetStates() override {
    return rule_.forgets ? Change("forget_states") : ServerAlgorithm::ForgetStates();
  }

 private:
  ServerHalf(const Rule& rule, Opened opened)
      : rule_(rule),
        schema_(std::move(opened.schema)),
        crew_(std::move(opened.crew)),
        numbers_(schema_.numbers) {}

  Json Question(const char* what, const ServerContext& context) const {
    return {{"do", what},
            {"arena", kept_->id()},
            {"of", {context.round.value, context.phase.value}},
            {"numbers", numbers_}};
  }

  // Calls a method that changes what the half keeps, and is of no round.
  absl::Status Change(const char* method) {
    const Arena* const arenas[] = {kept_.get()};
    MACAW_ASSIGN_OR_RETURN(const Json answer, crew_->Ask(Question(method, {}), arenas));
    return Take(answer, method);
  }

  // What the rule has changed.
  absl::Status Take(const Json& answer, const char* what) {
    for (size_t i = 0; i < schema_.server.size(); ++i) {
      const VectorView vector = kept_->At(Kind::kServer, i);
      peer::ZeroGaps(vector);
      if (const std::string found = FirstNotFinite(vector); !found.empty()) {
        return absl::InternalError(absl::StrCat(what, " leaves the vector '",
                                                schema_.server[i].name, "', of which ", found));
      }
    }
    numbers_ = answer.at("numbers").get<std::map<std::string, double>>();
    return absl::OkStatus();
  }

  const Rule rule_;
  const RuleSchema schema_;
  const std::unique_ptr<Crew> crew_;
  std::unique_ptr<Arena> kept_;
  std::map<std::string, double> numbers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<algorithms::ServerAlgorithm>> MakeServerHalf(
    const Rule& rule, const algorithms::Setup& setup, FlatVector model) {
  MACAW_ASSIGN_OR_RETURN(Opened opened, Open(rule, setup));
  return ServerHalf::Make(rule, std::move(opened), model);
}

}  // namespace macaw::sdk::rules
