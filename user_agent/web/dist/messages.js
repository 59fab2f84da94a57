import{a}from"./chunk-D2CFBUZH.js";export{a as messages};
