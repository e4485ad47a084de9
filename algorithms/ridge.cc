#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/linear_layer.h"
#include "algorithms/statistics.h"
#include "algorithms/symmetric.h"
#include "core/status.h"

// Ridge regression in closed form: min over W, b of Σ ‖y − W·x − b‖² + λ‖W‖² over the rows of all
// clients that have come. Σ x̃x̃ᵀ and Σ x̃yᵀ with x̃ = (x, 1) say all about the rows that the
// minimum depends on, and they add up over clients.

namespace macaw::algorithms {
namespace {

constexpr char kCame[] = "came";    // client state: the round in which it sent its sums; 0: none
constexpr char kSummed[] = "rows";  // metric: rows in the sums
// Down: the last rounds whose sums were thrown away, the newest last; 0: none. The clients of those
// rounds come again. One that is not drawn again before so many further ones does not.
constexpr char kThrownAway[] = "thrown_away";
constexpr size_t kMostThrownAway = 256;
constexpr char kWhatRidgeDoes[] = "ridge solves for one linear layer";

size_t Terms(const LinearLayer& layer) { return layer.inputs + (layer.bias ? 1 : 0); }

// Σ x̃x̃ᵀ above its diagonal, Σ x̃yᵀ, and the number of rows.
absl::StatusOr<LayoutPtr> RidgeLayout(const LinearLayer& layer) {
  const auto terms = static_cast<int64_t>(Terms(layer));
  return ParameterLayout::Make(
      {{.name = "gram", .shape = {terms, terms}},
       {.name = "moment", .shape = {terms, static_cast<int64_t>(layer.outputs)}},
       {.name = "rows", .shape = {1}}},
      DType::kF64);
}

const LayoutPtr& CameLayout() {
  static const LayoutPtr& layout = *new LayoutPtr(ParameterLayout::Scalars(kCame, 1, DType::kF64));
  return layout;
}

const LayoutPtr& ThrownAwayLayout() {
  static const LayoutPtr& layout =
      *new LayoutPtr(ParameterLayout::Scalars(kThrownAway, kMostThrownAway, DType::kF64));
  return layout;
}

class RidgeSums final : public training::RowStatistics {
 public:
  RidgeSums(const LinearLayer& layer, LayoutPtr layout)
      : layer_(layer), layout_(std::move(layout)) {}

  const LayoutPtr& layout() const override { return layout_; }

  void Add(const training::NumberedRows& rows, ConstVectorView, VectorView sums) const override {
    const std::span<double> numbers = sums.As<double>();
    double* const gram = numbers.data() + layout_->entries()[0].offset;
    double* const moment = numbers.data() + layout_->entries()[1].offset;
    const size_t terms = Terms(layer_), outputs = layer_.outputs;
    std::vector<double> x(terms, 1.0), y(outputs);
    for (size_t r = 0; r < rows.count(); ++r) {
      std::ranges::copy(rows.row(r), x.begin());
      Targets(rows, r, y);
      for (size_t i = 0; i < terms; ++i) {
        if (x[i] == 0) continue;
        for (size_t j = i; j < terms; ++j) gram[i * terms + j] += x[i] * x[j];
        for (size_t k = 0; k < outputs; ++k) moment[i * outputs + k] += x[i] * y[k];
      }
    }
    numbers[layout_->entries()[2].offset] += static_cast<double>(rows.count());
  }

 private:
  // Of a class: 1 for its output and 0 for the others; of two classes with one output: 1 and −1.
  void Targets(const training::NumberedRows& rows, size_t r, std::vector<double>& y) const {
    if (rows.classes.empty()) {
      y[0] = rows.targets[r];
    } else if (layer_.outputs == 1) {
      y[0] = rows.classes[r] == 1 ? 1 : -1;
    } else {
      std::ranges::fill(y, 0.0);
      y[static_cast<size_t>(rows.classes[r])] = 1;
    }
  }

  const LinearLayer layer_;
  const LayoutPtr layout_;
};

class RidgeClient final : public StatisticsClient {
 public:
  RidgeClient(const LinearLayer& layer, const LayoutPtr& layout)
      : StatisticsClient(PhaseSums{std::make_shared<RidgeSums>(layer, layout)}) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    if (HasCome(context)) return training::LocalPlan();
    return StatisticsClient::Prepare(context, workspace);
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    if (HasCome(context)) {
      const VectorView zeros = workspace.Vector(SumsLayout(context.phase));
      Zero(zeros);
      return ClientResult{.up = {{SumsOf(context.phase), zeros}}};
    }
    MACAW_ASSIGN_OR_RETURN(ClientResult result,
                           StatisticsClient::Conclude(context, outcomes, workspace));
    const VectorView came = workspace.Vector(CameLayout());
    came.As<double>()[0] = context.round.value;
    result.state = {{kCame, came}};
    return result;
  }

 private:
  static bool HasCome(const ClientContext& context) {
    const double round = context.State(kCame).As<double>()[0];
    return round > 0 && !std::ranges::count(context.Down(kThrownAway).As<double>(), round);
  }
};

class RidgeServer final : public StatisticsServer {
 public:
  RidgeServer(const Setup& setup, const LinearLayer& layer, const LayoutPtr& sums, FlatVector model)
      : StatisticsServer(std::move(model)),
        layer_(layer),
        lambda_(setup.Get<double>("lambda")),
        sums_(kept_.Vector("sums", FlatVector(sums))),
        thrown_away_(kept_.Vector(kThrownAway, FlatVector(ThrownAwayLayout()))) {}

  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    return Broadcast{{"model", Model()}, {kThrownAway, thrown_away_}};
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    const FlatVector& sums = ChannelOf(aggregate, SumsOf(context.phase)).value;
    const FlatVector before = FlatVector::CopyOf(sums_, sums.layout());
    Add(sums.view(), sums_);
    const bool lies = SumsEntry(sums.view(), 2)[0] < 0;  // less than no rows
    const bool kept = !lies && (SumsEntry(sums_, 2)[0] == 0 || Solve());
    if (!kept) {
      Copy(before.view(), sums_);
      const std::span<double> rounds = thrown_away_.As<double>();
      std::ranges::copy(rounds.subspan(1), rounds.begin());
      rounds.back() = context.round.value;
    }
    ReportOnSums(context, "ridge", kept);
    context.Report(kSummed, SumsEntry(sums_, 2)[0]);
    return AfterApply::kRoundDone;
  }

 private:
  std::vector<double> Entry(size_t e) const {
    const std::span<const double> numbers = SumsEntry(sums_, e);
    return {numbers.begin(), numbers.end()};
  }

  // False: the solution is not finite, and the model stays.
  bool Solve() {
    std::vector<double> gram = Entry(0), weights = Entry(1);
    const size_t terms = Terms(layer_);
    for (size_t i = 0; i < layer_.inputs; ++i) gram[i * terms + i] += lambda_;  // b is free
    SolveSymmetric(terms, layer_.outputs, gram, weights);
    return DispatchDType(model_.dtype(), [&]<typename T>(T) {
      const auto fits = [](double weight) {  // false for NaN
        return std::abs(weight) <= double{std::numeric_limits<T>::max()};
      };
      if (!std::ranges::all_of(weights, fits)) return false;
      const std::span<T> numbers = model_.As<T>();
      const std::vector<LayoutEntry>& entries = model_.layout->entries();
      for (size_t k = 0; k < layer_.outputs; ++k) {
        for (size_t i = 0; i < layer_.inputs; ++i) {
          numbers[entries[0].offset + k * layer_.inputs + i] =
              static_cast<T>(weights[i * layer_.outputs + k]);
        }
        if (layer_.bias) {
          numbers[entries[1].offset + k] =
              static_cast<T>(weights[layer_.inputs * layer_.outputs + k]);
        }
      }
      return true;
    });
  }

  const LinearLayer layer_;
  const double lambda_;
  const VectorView sums_, thrown_away_;
};

absl::StatusOr<Schema> RidgeSchema(const Setup& setup) {
  MACAW_ASSIGN_OR_RETURN(const LinearLayer layer, LinearLayer::Of(setup, kWhatRidgeDoes));
  MACAW_ASSIGN_OR_RETURN(LayoutPtr sums, RidgeLayout(layer));
  Schema schema = StatisticsSchema(setup, {std::move(sums)}, {kSummed});
  schema.down.push_back({kThrownAway, ThrownAwayLayout()});
  schema.state = {{kCame, CameLayout()}};
  return schema;
}

}  // namespace

Description Ridge() {
  return StatisticsRule({
      .name = "ridge",
      .summary = "ridge regression: a linear model in closed form, exact once each client has come",
      .paper =
          "Hoerl and Kennard, 1970, Ridge Regression: Biased Estimation for Nonorthogonal Problems",
      .formula = "up      Σ x̃x̃ᵀ, Σ x̃yᵀ over its rows, x̃ = (x, 1), when it first comes\n"
                 "server  adds them to those of earlier rounds\n"
                 "        W, b: the minimum of Σ ‖y − W·x − b‖² + λ‖W‖² over the rows so far",
      .parameters = {{.name = "lambda",
                      .default_value = 1.0,
                      .help = "λ: of ‖W‖² beside the sum over rows; the bias is free",
                      .minimum = 0}},
      .remarks =
          "The model is [\"linear K\"], with \"flatten\" before it for images. A class is 1 at its "
          "output and 0 at the others, with one output 1 and -1; the loss of the run's task is of "
          "other outputs, so look at the accuracy. With cohort.size all clients one round is enough. "
          "A client sends the square of the number of features, and what it sends says much about "
          "rows where it has few. Features count as [data] and [model] normalise them. A client keeps "
          "in which round it came: where an owner loses that (state.store = \"memory\", a new disk), "
          "it comes again and its rows count twice, which rule_rows shows. Where the sums of a round "
          "have no finite solution or are of less than no rows, as those of a hostile client may be, "
          "they are thrown away, which rule_thrown_away shows, and all clients of the round come "
          "again.",
      .has_independent_state = true,
      .check = [](const Setup& setup) { return LinearLayer::Of(setup, kWhatRidgeDoes).status(); },
      .schema = RidgeSchema,
      .server = [](const Setup& setup,
                   FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
        MACAW_ASSIGN_OR_RETURN(const LinearLayer layer, LinearLayer::Of(setup, kWhatRidgeDoes));
        MACAW_ASSIGN_OR_RETURN(const LayoutPtr sums, RidgeLayout(layer));
        return std::make_unique<RidgeServer>(setup, layer, sums, std::move(model));
      },
      .client = [](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
        MACAW_ASSIGN_OR_RETURN(const LinearLayer layer, LinearLayer::Of(setup, kWhatRidgeDoes));
        MACAW_ASSIGN_OR_RETURN(const LayoutPtr sums, RidgeLayout(layer));
        return std::make_unique<RidgeClient>(layer, sums);
      },
  });
}

}  // namespace macaw::algorithms
