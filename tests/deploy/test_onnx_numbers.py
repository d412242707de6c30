"""Numbers of ONNX files, against the package onnx."""

import math

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from decap.deploy.onnx_numbers import not_finite


def _model(*constants) -> bytes:
  ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
  nodes = [helper.make_node("Identity", ["x"], ["y"])]
  graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], list(constants))
  return helper.make_model(graph, producer_name="é" * 200).SerializeToString()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38, 0.0])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_constants_of_every_kind(value, kind):
  good = numpy_helper.from_array(np.ones((40, 5), kind), "good")
  odd = np.full((40, 5), 2.0, kind)
  odd[7, 3] = value
  whole = numpy_helper.from_array(np.arange(5), "whole")
  # Numbers may also be written as a list of floats.
  name = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE}[kind]
  listed = helper.make_tensor("listed", name, [2], [1.0, value])
  expected = [] if math.isfinite(value) else ["odd", "listed"]
  onnx = _model(good, numpy_helper.from_array(odd, "odd"), whole, listed)
  assert not_finite(onnx) == expected


@pytest.mark.parametrize("junk", [b"\xff" * 20, b"\x3a\x7f123", b"\x0b"])
def test_other_files_are_told(junk):
  with pytest.raises(ValueError, match="not a protobuf"):
    not_finite(junk)
