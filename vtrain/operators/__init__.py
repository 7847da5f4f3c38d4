"""What a layer, the embedding, the head and the optimizer cost under a plan."""

from vtrain.operators.boundary import boundary_seconds
from vtrain.operators.ends import EndCosts, end_costs
from vtrain.operators.layer import LayerCosts, layer_costs
from vtrain.operators.workload import Workload

__all__ = ["EndCosts", "LayerCosts", "Workload", "boundary_seconds", "end_costs", "layer_costs"]
