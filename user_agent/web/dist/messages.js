import{a}from"./chunk-LRFV2P63.js";export{a as messages};
