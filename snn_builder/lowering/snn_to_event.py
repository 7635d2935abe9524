# SPDX-License-Identifier: Apache-2.0
"""The pass SNNToEvent: synapses read lists of spikes, and what each layer does to an output is done together.

A layer is what one neuron operation needs: its synapses, their rescales, sum and gain. The pass finds these operations by the
buffers that only they touch, puts them into one snn.event at the place of the last of them, and gives each synapse
a list: the one that a neuron emits while it is updated, the one that is kept from the last step, or a scan of an array.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from mlir import ir
from mlir.dialects import memref
from mlir.passmanager import ExternalPass

from ..dialect import event as event_form
from ..dialect.checks import operands
from .memory import index_type
from .scalar import name_of

# Operations that treat each of their n outputs for itself, and the operands that they write.
_ELEMENTWISE = {
    "snn.linear": ("y",),
    "snn.conv2d": ("y",),
    "snn.rescale": ("y",),
    "snn.sum": ("y",),
    "snn.gain": ("y",),
    "snn.scale": ("y",),
    "snn.threshold": ("spikes",),
    "snn.output": ("out",),
    "snn.li": ("v",),
    "snn.lif": ("v", "spikes"),
    "snn.cubali": ("i", "v"),
    "snn.cubalif": ("i", "v", "spikes"),
}
_WRITTEN = {
    "snn.events": ("events", "count", "graded"),
    "snn.spread": ("y",),
    "snn.transpose": ("y",),
    "snn.sumpool2d": ("y",),
}
_SYNAPSES = ("snn.linear", "snn.conv2d")
_SPIKING = ("snn.lif", "snn.cubalif", "snn.threshold")
_NEURONS = ("snn.li", "snn.lif", "snn.cubali", "snn.cubalif")


class SNNToEvent:
    """The pass: `PassManager.add(SNNToEvent(), name="snn-to-event")`, on a module; what is not for kernel=event stays."""

    def __call__(self, module: ir.Operation, pass_: ExternalPass) -> None:
        attributes = module.attributes
        if "snn.kernel" not in attributes or ir.StringAttr(attributes["snn.kernel"]).value != "event":
            return
        with module.context, ir.Location.unknown():
            for op in module.regions[0].blocks[0].operations:
                if op.operation.name == "func.func" and len(op.operation.regions[0].blocks):
                    _Function(op.operation.regions[0].blocks[0]).rewrite()


class _Node:
    """An operation of the function, with the arrays that it reads and writes."""

    def __init__(self, op: ir.Operation, place: int) -> None:
        self.op = op  # gone once it has got another form
        self.kind = op.name
        self.comment = str(op.location.name_str) if op.location.is_a_name() else op.name
        self.place = place
        self.operands = operands(op) if op.name.startswith("snn.") else {}
        written = _ELEMENTWISE.get(op.name) or _WRITTEN.get(op.name)
        arrays = [value for value in op.operands if isinstance(value.type, ir.MemRefType)]
        self.reads = self.writes = arrays  # whatever it is, it may write all that it gets
        if written is not None:
            only = [name for name in written if name not in ("v", "i")]
            self.writes = [value for name in written for value in self.operands[name]]
            self.reads = [value for name, values in self.operands.items() if name not in only for value in values]

    def conflicts(self, other: _Node) -> bool:
        """Must the two stay in their order?"""
        return bool(
            _overlap(self.writes, other.reads)
            or _overlap(self.writes, other.writes)
            or _overlap(self.reads, other.writes)
        )


def _overlap(some: Iterable[ir.Value], others: list[ir.Value]) -> bool:
    return any(value in others for value in some)


class _Function:
    """The body of `step` on its way to the event form."""

    def __init__(self, block: ir.Block) -> None:
        self.block = block
        self.nodes = [
            _Node(op.operation, place)
            for place, op in enumerate(block.operations)
            if op.operation.name.startswith(("snn.", "linalg."))
        ]
        self.layer: dict[int, list[_Node]] = {  # by place of each member
            node.place: [node] for node in self.nodes if node.kind in _ELEMENTWISE and _flat(node)
        }
        self.lists: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}  # emitted by the neuron that writes that array
        self.scans: dict[ir.Value, tuple[ir.Value, ir.Value, ir.Value | None]] = {}
        self.firsts: dict[tuple[ir.Value, int], ir.Value] = {}  # by list and channels of a place

    def rewrite(self) -> None:
        buffers = [op.operation.result for op in self.block.operations if op.operation.name == "memref.alloca"]
        for buffer in buffers:
            self._merge_around(buffer)
        layers = {id(members): members for members in self.layer.values()}
        built = [(members, self._build(members)) for members in layers.values()]
        # In the order in which they will run, so that an array is listed before the first that reads its list.
        readers = [
            (members[-1].place, node, event)
            for members, event in built
            for node in members
            if node.kind in _SYNAPSES and _rank(node.operands["w"][0]) == 3
        ]
        readers += [(node.place, node, node.op) for node in self.nodes if node.kind == "snn.sumpool2d"]
        for _, node, op in sorted(readers, key=lambda reader: (reader[0], reader[1].place)):
            if node.kind in _SYNAPSES:
                self._gather(node, op)
            else:
                self._scatter(node)
        for node in self.nodes:
            if node.kind == "snn.events":
                self._keep(node)
        self._move_buffers(buffers, [event for _, event in built])

    # Layers

    def _merge_around(self, buffer: ir.Value) -> None:
        """Joins all that touch a buffer into one layer, if they may stand together."""
        touching = [node for node in self.nodes if buffer in node.reads or buffer in node.writes]
        if not touching or any(node.place not in self.layer for node in touching):
            return
        if any(node.kind in _SYNAPSES and buffer in node.operands["x"] for node in touching):
            return
        places = {node.place for each in touching for node in self.layer[each.place]}
        merged = [node for node in self.nodes if node.place in places]
        last = merged[-1].place
        written = [value for node in merged for value in node.writes]
        synapses = [node for node in merged if node.kind in _SYNAPSES]
        if any(node.operands["x"][0] in written for node in synapses):
            return  # a block of outputs would be written before the next one reads it
        if len({_blocks(node) for node in synapses}) > 1:
            return
        between = [o for o in self.nodes if merged[0].place < o.place < last and o.place not in places]
        if any(node.place < other.place and node.conflicts(other) for other in between for node in merged):
            return
        for place in places:
            self.layer[place] = merged

    def _build(self, members: list[_Node]) -> ir.Operation:
        """One snn.event at the place of the last member."""
        main = next((node for node in members if node.kind in _NEURONS), members[-1])
        comments = [node.comment for node in members if node.kind in (*_SYNAPSES, *_NEURONS)]
        n = _count(members[-1].writes[0])
        with ir.InsertionPoint(members[-1].op):
            event = ir.Operation.create(
                "snn.event",
                regions=1,
                attributes={"n": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), n)},
                loc=ir.Location.name(", ".join(comments or [main.comment])),
            )
        body = event.regions[0].blocks.append()
        for node in members:
            body.append(node.op)
        with ir.InsertionPoint(body):
            # IRDL cannot define a terminator; of all dialects' this is the one that means nothing more.
            ir.Operation.create("omp.terminator")
        return event

    # Lists

    def _gather(self, node: _Node, event: ir.Operation) -> None:
        """A synapse's event form."""
        x = node.operands["x"][0]
        b = node.operands["b"][0] if node.operands["b"] else None
        w, y = node.operands["w"][0], node.operands["y"][0]
        windows = node.kind == "snn.conv2d"
        # The values of a leaky integrator are hardly ever 0: they are listed only where the list says what a window sees.
        found = self._list_of(x, node, event, anything=windows or not self._is_potential(x))
        values, listed, graded = (x, None, None) if found is None else found
        with ir.InsertionPoint(event):
            first = self._first(node, listed) if windows and listed is not None else None
        with ir.InsertionPoint(node.op):
            if listed is not None and first is not None:
                event_form.gather2d(
                    values, listed, first, graded, w, b, y, attributes=_attributes(node), loc=node.comment
                )
            else:
                w_scale = int(ir.IntegerAttr(node.op.attributes["w_scale"]).value)
                event_form.gather(values, listed, graded, w, b, y, w_scale=w_scale, loc=node.comment)
        node.op.erase()

    def _scatter(self, node: _Node) -> None:
        """A pool's event form, where its input is spikes or the network's."""
        if ir.BoolAttr(node.op.attributes["saturate"]).value:
            return
        x, y = node.operands["x"][0], node.operands["y"][0]
        found = self._list_of(x, node, node.op, anything=False)
        if found is None:
            return
        values, listed, graded = found
        with ir.InsertionPoint(node.op):
            event_form.scatter2d(values, listed, graded, y, attributes=_attributes(node), loc=node.comment)
        node.op.erase()

    def _list_of(
        self, x: ir.Value, reader: _Node, before: ir.Operation, *, anything: bool
    ) -> tuple[ir.Value | None, tuple[ir.Value, ir.Value], ir.Value | None] | None:
        """What a reader takes an array as: its values (None: they are spikes), the list of them, and whether they are no spikes. None
        where it is not listed: unless it may be `anything`, only spikes and the network's inputs are."""
        writers = [other for other in self.nodes if other.place < reader.place and x in other.writes]
        writer = writers[-1] if writers else None
        if writer is not None and writer.kind == "snn.spread":
            return None, (writer.operands["events"][0], writer.operands["count"][0]), None
        if writer is not None and writer.kind in _SPIKING and x in writer.operands["spikes"]:
            return None, self._emitted(writer), None
        kept = writer is None and _is_state_of_spikes(x, self.nodes)
        source = writer.operands["x"][0] if writer is not None and writer.kind == "snn.transpose" else x
        if not (anything or kept or (isinstance(source.owner, ir.Block) and not self._is_potential(source))):
            return None
        *listed, graded = self._scanned(x, before, spikes=kept, transposed=writer if source is not x else None)
        return None if kept else x, (listed[0], listed[1]), graded

    def _is_potential(self, x: ir.Value) -> bool:
        return any(other.kind in ("snn.li", "snn.cubali") and x in other.operands["v"] for other in self.nodes)

    def _first(self, node: _Node, listed: tuple[ir.Value, ir.Value]) -> ir.Value:
        """Where in a list each place begins, for a convolution; made once."""
        groups = int(ir.IntegerAttr(node.op.attributes["groups"]).value)
        inputs = list(ir.DenseI64ArrayAttr(node.op.attributes["input"]))
        channels = inputs[2] // groups
        if (listed[0], channels) not in self.firsts:
            name = f"{_name(listed[0]).removesuffix('_list')}_first"
            name += f"_of_{groups}" if groups > 1 else ""
            first = self._buffer(name, math.prod(inputs) // channels + 1, ir.MemRefType(listed[0].type).element_type)
            event_form.places(*listed, first, channels=channels, loc=f"{name}: where each place begins in the list")
            self.firsts[listed[0], channels] = first
        return self.firsts[listed[0], channels]

    def _emitted(self, neuron: _Node) -> tuple[ir.Value, ir.Value]:
        """The list that a neuron operation writes, beside its array of spikes."""
        spikes = neuron.operands["spikes"][0]
        if spikes not in self.lists:
            name = _name(neuron.operands["v"][0]).removesuffix("_v") if "v" in neuron.operands else _name(spikes)
            self.lists[spikes] = listed = self._new_list(name, spikes)
            with ir.InsertionPoint(_after(neuron.op)):
                event_form.emit(spikes, *listed, loc=neuron.comment)
        return self.lists[spikes]

    def _scanned(
        self, x: ir.Value, before: ir.Operation, *, spikes: bool, transposed: _Node | None
    ) -> tuple[ir.Value, ir.Value, ir.Value | None]:
        """The list of what is not 0 in an array, made once after it is written; if all that read it read only what is listed, while it is
        `transposed`."""
        if x in self.scans:
            return self.scans[x]
        name = _name(x)
        listed = self._new_list(name, x)
        graded = None if spikes else self._buffer(f"{name}_graded", 1, ir.IntegerType.get_signless(8))
        source, y, rows = x, None, 1
        fixed = transposed is not None and not any(transposed.operands["x"][0] in node.writes for node in self.nodes)
        if transposed is not None and fixed and all(self._lists(use.owner.operation, transposed) for use in x.uses):
            source, y = transposed.operands["x"][0], x
            rows = int(ir.IntegerAttr(transposed.op.attributes["rows"]).value)
            transposed.op.erase()
        with ir.InsertionPoint(before):
            event_form.events(source, *listed, graded, y, rows=rows, loc=f"{name}: list what is not 0")
        if not spikes:  # a state is overwritten later, so that another reader may see something else
            self.scans[x] = (*listed, graded)
        return (*listed, graded)

    def _lists(self, reader: ir.Operation, transposed: _Node) -> bool:
        """Does an operation read of the network's transposed input only what is listed?"""
        if reader.name == "snn.sumpool2d":
            return not ir.BoolAttr(reader.attributes["saturate"]).value
        if reader.name in _SYNAPSES:
            return _rank(operands(reader)["w"][0]) == 3
        return reader == transposed.op or reader.name in ("snn.gather", "snn.gather2d", "snn.scatter2d")

    def _new_list(self, name: str, of: ir.Value) -> tuple[ir.Value, ir.Value]:
        count = _count(of)
        return self._buffer(f"{name}_list", count, index_type(count)), self._buffer(
            f"{name}_count", 1, ir.IndexType.get()
        )

    def _buffer(self, name: str, count: int, element: ir.Type) -> ir.Value:
        with ir.InsertionPoint.at_block_begin(self.block):
            return memref.AllocaOp(ir.MemRefType.get([count], element), [], [], loc=ir.Location.name(name)).memref

    def _keep(self, node: _Node) -> None:
        """Spikes that a neuron lists anyway are kept by copying its list."""
        x = node.operands["x"][0]
        writer = next((other for other in self.nodes if other.kind in _SPIKING and x in other.operands["spikes"]), None)
        if writer is None:
            return
        events, count = self._emitted(writer)
        with ir.InsertionPoint(node.op):
            event_form.keep(events, count, node.operands["events"][0], node.operands["count"][0], loc=node.comment)
        node.op.erase()

    # Buffers

    def _move_buffers(self, buffers: list[ir.Value], events: list[ir.Operation]) -> None:
        """Buffers that nobody reads any more go, with what writes them; those of one layer go into it."""
        spreads = [node for node in self.nodes if node.kind == "snn.spread"]
        for node in spreads:
            y = node.operands["y"][0]
            if len(list(y.uses)) == 1:
                node.op.erase()
        for buffer in buffers:
            users = [use.owner.operation for use in buffer.uses]
            if not users:
                buffer.owner.erase()
                continue
            parents = {user.parent for user in users}
            for event in events:
                if parents == {event}:
                    buffer.owner.move_before(event.regions[0].blocks[0].operations[0].operation)


def _attributes(node: _Node) -> dict[str, ir.Attribute]:
    """What an operation and its event form have in common."""
    names = ("input", "output", "kernel", "stride", "padding", "dilation", "groups", "w_scale")
    return {name: node.op.attributes[name] for name in names if name in node.op.attributes}


def _blocks(synapse: _Node) -> str:
    """Synapses of one layer have the same blocks of outputs."""
    return " ".join(str(synapse.op.attributes[name]) for name in ("output", "groups") if name in synapse.op.attributes)


def _is_state_of_spikes(x: ir.Value, nodes: list[_Node]) -> bool:
    """Is an array written by a neuron, later in the step: last step's spikes?"""
    return any(node.kind in _SPIKING and x in node.operands["spikes"] for node in nodes)


def _flat(node: _Node) -> bool:
    """Are all arrays that it treats element by element of rank 1?"""
    if node.kind == "snn.output" and ir.IntegerAttr(node.op.attributes["rows"]).value > 1:
        return False
    names = [name for name in ("x", "y", "v", "spikes", "out") if node.kind not in _SYNAPSES or name == "y"]
    return all(_rank(value) == 1 for name in names for value in node.operands.get(name, []))


def _after(op: ir.Operation) -> ir.Operation:
    operations = [other.operation for other in op.block.operations]
    return operations[operations.index(op) + 1]


def _name(array: ir.Value) -> str:
    return name_of(array, "list")


def _rank(array: ir.Value) -> int:
    return len(ir.MemRefType(array.type).shape)


def _count(array: ir.Value) -> int:
    return int(ir.MemRefType(array.type).shape[0])
