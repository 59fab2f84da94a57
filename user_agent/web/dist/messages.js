import{a}from"./chunk-IZXGPBBU.js";export{a as messages};
