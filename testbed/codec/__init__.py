"""The codec axis: tensors to payloads and back, with exact prediction of size. One file per codec."""
