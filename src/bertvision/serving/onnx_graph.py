"""Which operators a graph consists of, read from its bytes before onnxruntime sees it.

A graph could loop for ever, and onnxruntime would begin while it loads it. So a graph has the operators that the
exporter writes, none of which has a graph of its own. Package `onnx` is not needed, nor installed where models run.
"""

from collections.abc import Iterator
from pathlib import Path

from bertvision.errors import FolderError

# Fields of onnx.proto (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3).
GRAPH, FUNCTIONS = 7, 25  # of a model
NODE = 1  # of a graph
ATTRIBUTE, OPERATOR, DOMAIN = 5, 4, 7  # of a node
INNER_GRAPH, INNER_GRAPHS = 6, 11  # of an attribute
DOMAINS = {"", "ai.onnx", "com.microsoft"}
OPERATORS = frozenset(
    """
    Abs Add And ArgMax ArgMin Attention AveragePool BatchNormalization BiasGelu Cast CastLike Ceil Clip Concat
    Constant ConstantOfShape Conv ConvTranspose Cos CumSum DequantizeLinear Div Dropout DynamicQuantizeLinear Einsum
    Elu Equal Erf Exp Expand EyeLike FastGelu Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm
    GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Identity
    InstanceNormalization IsInf IsNaN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul
    MatMulInteger Max MaxPool Mean Min Mish Mod Mul Neg NonZero Not OneHot Or PRelu Pad Pow QuantizeLinear
    RMSNormalization RNN Range Reciprocal ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare Relu Reshape RotaryEmbedding Round ScatterElements ScatterND Selu Shape Sigmoid Sign
    SimplifiedLayerNormalization Sin Size SkipLayerNormalization Slice Softmax Softplus Softsign Split Sqrt Squeeze
    Sub Sum Swish Tanh Tile TopK Transpose Trilu Unsqueeze Where Xor
    """.split()  # noqa: SIM905 (a list of these would be a hundred lines)
)
Field = tuple[int, memoryview]


def check_operators(path: Path) -> None:
    """Refuse a graph with an operator that the exporter does not write."""
    try:
        odd = next(_odd_parts(memoryview(path.read_bytes())), None)
    except (IndexError, ValueError):
        odd = "bytes that are no graph"
    if odd is not None:
        raise FolderError(f"{path}: has {odd}, which `bertvision` does not export; export the model again")


def _odd_parts(model: memoryview) -> Iterator[str]:
    """Return what a model has that the exporter does not write."""
    for field, graph in _fields(model):
        if field == FUNCTIONS:
            yield "functions of its own"
        if field != GRAPH:
            continue
        for part, node in _fields(graph):
            if part == NODE:
                yield from _odd_parts_of_node(node)


def _odd_parts_of_node(node: memoryview) -> Iterator[str]:
    for field, value in _fields(node):
        if field == OPERATOR and (name := _text(value)) not in OPERATORS:
            yield f"the operator {name!r:.60}"
        if field == DOMAIN and (name := _text(value)) not in DOMAINS:
            yield f"an operator of {name!r:.60}"
        if field == ATTRIBUTE and any(inner in (INNER_GRAPH, INNER_GRAPHS) for inner, _ in _fields(value)):
            yield "a graph inside of its graph"


def _text(value: memoryview) -> str:
    return bytes(value[:100]).decode("utf-8", "replace")


def _fields(message: memoryview) -> Iterator[Field]:
    """Return the fields of a protobuf message that hold bytes, with their numbers."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:  # a number
                _, at = _varint(message, at)
            case 1:  # 64 bits
                at += 8
            case 5:  # 32 bits
                at += 4
            case 2:  # bytes
                size, at = _varint(message, at)
                if at + size > len(message):
                    raise ValueError
                yield tag >> 3, message[at : at + size]
                at += size
            case _:
                raise ValueError


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Read a number of seven bits a byte; return it and where the next field begins."""
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError
