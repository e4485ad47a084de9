#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/linear_layer.h"
#include "algorithms/statistics.h"
#include "core/status.h"

// Lloyd's k-means over the rows of all clients of a round: Lloyd, "Least squares quantization in
// PCM", IEEE Transactions on Information Theory, 1982. The sums and counts of rows by nearest
// centre add up over clients, so a round with all of them is a step on their union.
//
// The centres are the rows of a linear layer with the biases −‖c‖²/2: ‖x − c‖² is least where
// c·x − ‖c‖²/2 is largest, so the model's predicted class is the number of the nearest centre.

namespace macaw::algorithms {
namespace {

constexpr char kInertia[] = "inertia";  // metric: mean ‖x − c‖² at the round's first centres
constexpr char kEmpty[] = "empty";      // metric: centres without rows
constexpr char kWhatKMeansDoes[] = "kmeans has its centres in one linear layer";

enum KMeansEntry : size_t { kCentres, kCounts, kSquares, kDistances };

absl::StatusOr<LinearLayer> CentresOf(const Setup& setup) {
  MACAW_ASSIGN_OR_RETURN(const LinearLayer layer, LinearLayer::Of(setup, kWhatKMeansDoes));
  if (layer.bias) return layer;
  return absl::InvalidArgumentError(
      "kmeans keeps -‖c‖²/2 of each centre c in the layer's biases: take \"nobias\" out");
}

// Σ x and the number of rows by nearest centre; Σ x² by feature, and Σ ‖x − c‖².
absl::StatusOr<LayoutPtr> KMeansLayout(const LinearLayer& layer) {
  const auto centres = static_cast<int64_t>(layer.outputs);
  const auto width = static_cast<int64_t>(layer.inputs);
  return ParameterLayout::Make({{.name = "centres", .shape = {centres, width}},
                                {.name = "counts", .shape = {centres}},
                                {.name = "squares", .shape = {width}},
                                {.name = "distances", .shape = {1}}},
                               DType::kF64);
}

class NearestCentres final : public training::RowStatistics {
 public:
  explicit NearestCentres(LayoutPtr layout) : layout_(std::move(layout)) {}

  const LayoutPtr& layout() const override { return layout_; }

  void Add(const training::NumberedRows& rows, ConstVectorView at, VectorView sums) const override {
    DispatchDType(at.dtype(), [&]<typename T>(T) { AddRows<T>(rows, at, sums); });
  }

 private:
  template <typename T>
  void AddRows(const training::NumberedRows& rows, ConstVectorView at, VectorView sums) const {
    const size_t width = rows.width;
    const LayoutEntry& weight = at.layout->entries()[0];
    const std::span<const T> centres = at.As<T>().subspan(weight.offset, weight.size);
    const std::span<double> sum = SumsEntry(sums, kCentres), squares = SumsEntry(sums, kSquares);
    for (size_t r = 0; r < rows.count(); ++r) {
      const std::span<const double> x = rows.row(r);
      size_t nearest = 0;
      double least = std::numeric_limits<double>::infinity();
      for (size_t c = 0; c < centres.size() / width; ++c) {
        double distance = 0;
        for (size_t i = 0; i < width; ++i) {
          const double apart = x[i] - double{centres[c * width + i]};
          distance += apart * apart;
        }
        if (distance >= least) continue;
        least = distance;
        nearest = c;
      }
      for (size_t i = 0; i < width; ++i) {
        sum[nearest * width + i] += x[i];
        squares[i] += x[i] * x[i];
      }
      SumsEntry(sums, kCounts)[nearest] += 1;
      SumsEntry(sums, kDistances)[0] += least;
    }
  }

  const LayoutPtr layout_;
};

class KMeansServer final : public StatisticsServer {
 public:
  KMeansServer(const Setup& setup, const LinearLayer& layer, FlatVector model)
      : StatisticsServer(std::move(model)),
        layer_(layer),
        started_(kept_.Number("started", setup.Get<std::string>("start") == "model" ? 1 : 0)) {
    if (started_ == 1) SetBiases();
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    const ConstVectorView sums = ChannelOf(aggregate, SumsOf(context.phase)).value.view();
    double rows = 0;
    for (const double count : SumsEntry(sums, kCounts)) rows += count;
    ReportOnSums(context, "kmeans", rows >= 1 || rows == 0);
    if (rows < 1) return AfterApply::kRoundDone;  // no client counted, or one that has lied
    context.Report(kInertia, SumsEntry(sums, kDistances)[0] / rows);
    DispatchDType(model_.dtype(), [&]<typename T>(T) {
      if (started_ == 1) {
        context.Report(kEmpty, static_cast<double>(Move<T>(sums)));
      } else {
        Draw<T>(context, sums, rows);
        context.Report(kEmpty, 0);
      }
    });
    started_ = 1;
    SetBiases();
    return AfterApply::kRoundDone;
  }

 private:
  template <typename T>
  std::span<T> Centre(size_t c) const {
    return model_.As<T>().subspan(model_.layout->entries()[0].offset + c * layer_.inputs,
                                  layer_.inputs);
  }

  // Each centre becomes the mean of its rows; one without rows stays. Returns how many have none.
  template <typename T>
  size_t Move(ConstVectorView sums) {
    size_t empty = 0;
    for (size_t c = 0; c < layer_.outputs; ++c) {
      const double count = SumsEntry(sums, kCounts)[c];
      if (count < 1) {  // below 1 but for 0: a client has lied
        ++empty;
        continue;
      }
      const std::span<const double> sum =
          SumsEntry(sums, kCentres).subspan(c * layer_.inputs, layer_.inputs);
      for (size_t i = 0; i < layer_.inputs; ++i) Centre<T>(c)[i] = static_cast<T>(sum[i] / count);
    }
    return empty;
  }

  // The first centres: normal around the rows' mean, with their deviation in each feature.
  template <typename T>
  void Draw(const ServerContext& context, ConstVectorView sums, double rows) {
    std::vector<double> mean(layer_.inputs), deviation(layer_.inputs);
    for (size_t i = 0; i < layer_.inputs; ++i) {
      for (size_t c = 0; c < layer_.outputs; ++c)
        mean[i] += SumsEntry(sums, kCentres)[c * layer_.inputs + i];
      mean[i] /= rows;
      const double variance = SumsEntry(sums, kSquares)[i] / rows - mean[i] * mean[i];
      deviation[i] = std::sqrt(std::max(variance, 0.0));
    }
    RandomStream random = context.Random("centres");
    for (size_t c = 0; c < layer_.outputs; ++c) {
      for (size_t i = 0; i < layer_.inputs; ++i)
        Centre<T>(c)[i] = static_cast<T>(mean[i] + deviation[i] * random.Normal());
    }
  }

  void SetBiases() {
    DispatchDType(model_.dtype(), [&]<typename T>(T) {
      for (size_t c = 0; c < layer_.outputs; ++c) {
        double square = 0;
        for (const T value : Centre<T>(c)) square += double{value} * double{value};
        model_.As<T>()[model_.layout->entries()[1].offset + c] = static_cast<T>(-square / 2);
      }
    });
  }

  const LinearLayer layer_;
  double& started_;  // 1: the model has centres
};

absl::StatusOr<Schema> KMeansSchema(const Setup& setup) {
  MACAW_ASSIGN_OR_RETURN(const LinearLayer layer, CentresOf(setup));
  MACAW_ASSIGN_OR_RETURN(LayoutPtr sums, KMeansLayout(layer));
  return StatisticsSchema(setup, {std::move(sums)}, {kInertia, kEmpty});
}

}  // namespace

Description KMeans() {
  return StatisticsRule({
      .name = "kmeans",
      .summary = "KMeans: clients sum their rows by nearest centre, and centres become the means",
      .paper = "Lloyd, 1982, Least squares quantization in PCM",
      .formula =
          "up      Σ x and the number of rows by nearest centre\n"
          "server  c ← Σ x/n of its rows; stays without any\n"
          "        first round: c ~ N(mean of all rows, their variance by feature)   start = \"moments\"",
      .parameters = {{.name = "start",
                      .default_value = "moments",
                      .help = "the first centres: moments, drawn around the mean of the first "
                              "round's rows with their deviations; model, the rows of its weights "
                              "(model.init)",
                      .choices = {"moments", "model"}}},
      .remarks =
          "The model is [\"linear K\"], with \"flatten\" before it for images: K centres, and the "
          "predicted class is the number of the nearest one. Labels are not used, so accuracies and "
          "losses say nothing; rule_inertia is what falls. K is the number of the data's "
          "classes, or data.classes; for fewer clusters than classes give the rows labels that are "
          "all 0. With cohort.size all clients a round is a step of Lloyd's algorithm on all rows; "
          "with fewer the centres follow the rows of the round. k-means++ is left out: set "
          "model.init, or try several seeds.",
      .check = [](const Setup& setup) { return CentresOf(setup).status(); },
      .schema = KMeansSchema,
      .server = [](const Setup& setup,
                   FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
        MACAW_ASSIGN_OR_RETURN(const LinearLayer layer, CentresOf(setup));
        return std::make_unique<KMeansServer>(setup, layer, std::move(model));
      },
      .client = [](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
        MACAW_ASSIGN_OR_RETURN(const LinearLayer layer, CentresOf(setup));
        MACAW_ASSIGN_OR_RETURN(LayoutPtr sums, KMeansLayout(layer));
        return std::make_unique<StatisticsClient>(
            PhaseSums{std::make_shared<NearestCentres>(std::move(sums))});
      },
  });
}

}  // namespace macaw::algorithms
